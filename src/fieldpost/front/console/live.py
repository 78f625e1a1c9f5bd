"""The stream by which an open page hears that something changed (server-sent events)."""

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import PageRequest, PageRoute

PATH = "/live"
ASK_EVERY = 10
"""So often, in changes, it is asked whether the session still lasts."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(request: PageRequest) -> Response:
    """Topics by their names, until the browser goes or the session ends."""
    request.backend.change_feed.check_room()
    return StreamingResponse(_events(request), media_type="text/event-stream", headers=HEADERS)


async def _events(request: PageRequest) -> AsyncIterator[bytes]:
    yield b": hello\n\n"
    beats = 0
    async for topics in request.backend.change_feed.changes():
        beats += 1
        # Whoever was logged out meanwhile hears nothing more, within moments.
        is_time_to_ask = not topics or beats % ASK_EVERY == 0
        if is_time_to_ask and await _is_over(request):
            return
        yield b"".join(b"event: %s\ndata:\n\n" % topic.encode() for topic in sorted(topics)) or b": still here\n\n"


async def _is_over(request: PageRequest) -> bool:
    return await request.backend.operate.accounts.by_session(request.secret or "", is_active=False) is None


ROUTES = (PageRoute("GET", PATH, stream, Access.VIEWER),)
