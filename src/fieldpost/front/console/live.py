"""Server-sent events that notify open pages of changes."""

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import PageRequest, PageRoute

PATH = "/live"
CHECK_SESSION_EVERY = 10
"""The session is checked once per this number of changes."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(request: PageRequest) -> Response:
    """Names of topics that changed since the tokens in the query, until the browser disconnects or the session ends."""
    request.backend.change_feed.check_room()
    return StreamingResponse(_events(request), media_type="text/event-stream", headers=HEADERS)


async def _events(request: PageRequest) -> AsyncIterator[bytes]:
    yield b": hello\n\n"
    beats = 0
    async for topics in request.backend.change_feed.changes(dict(request.http.query_params)):
        beats += 1
        # End the stream soon after a logout.
        is_check_due = not topics or beats % CHECK_SESSION_EVERY == 0
        session = request.secret or ""
        if is_check_due and await request.operate.accounts.by_session(session, is_active=False) is None:
            return
        yield b"".join(b"event: %s\ndata:\n\n" % topic.encode() for topic in sorted(topics)) or b": still here\n\n"


ROUTES = (PageRoute("GET", PATH, stream, Access.USER),)
