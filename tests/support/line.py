"""A hostile end of the link: whatever bytes a test likes, over real sockets, to the application as central serves it.

What is sent by POST and by WebSocket gets the same verdict, so `tell` takes the way as a parameter and answers in one
form.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.front.allowance import Allowances
from fieldpost.link.codec import decode, encode
from fieldpost.link.messages import Ack, Hello, LinkMessage, Refusal, Submit
from support.front import Front

Way = Literal["websocket", "post"]
WAYS: tuple[Way, ...] = ("websocket", "post")
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Reply:
    """An answer of HTTP as it stood on the line."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


class Raw(asyncio.Protocol):
    """A bare connection. What came before its end can be read after it, however it ended."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.is_ended = False
        self._came = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._came += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, data: bytes) -> None:
        """Send what the other end takes; that it has hung up shows when its answer is read."""
        if not self.transport.is_closing():
            self.transport.write(data)
        await asyncio.sleep(0)  # whoever sends without pause still lets the other end answer
        async with asyncio.timeout(DEADLINE_S):
            await self._writable.wait()

    async def exactly(self, count: int) -> bytes:
        """The next bytes; EOFError when there are not so many."""
        await self._until(lambda: len(self._came) >= count)
        if len(self._came) < count:
            raise EOFError
        taken = bytes(self._came[:count])
        del self._came[:count]
        return taken

    async def reply(self) -> Reply:
        """The next answer of HTTP."""
        await self._until(lambda: b"\r\n\r\n" in self._came)
        head = (await self.exactly(self._came.index(b"\r\n\r\n") + 4)).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Reply(int(first.split()[1]), headers, await self.exactly(int(headers.get("content-length", "0"))))

    @property
    def has_heard(self) -> bool:
        """Whether anything has come that was not read yet, or the end."""
        return bool(self._came) or self.is_ended

    async def heard(self, within_s: float) -> bool:
        """The same after so long at most."""
        with suppress(TimeoutError):
            await self._until(lambda: self.has_heard, within_s)
        return self.has_heard

    async def overhear(self, seconds: float) -> None:
        """Take no notice of what comes within so long."""
        with suppress(TimeoutError):
            await self._until(lambda: False, seconds)
        self._came.clear()

    async def end(self) -> bytes:
        """What still comes until the other end hangs up, in whatever way."""
        await self._until(lambda: False)
        return bytes(self._came)

    async def _until(self, is_so: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
        """Return when it is so, or when the connection has ended."""
        async with asyncio.timeout(within_s):
            while not is_so() and not self.is_ended:
                self._news.clear()
                await self._news.wait()


class Line:
    """The way to central, and what a test looks at behind it."""

    def __init__(self, front: Front, url: str, http: aiohttp.ClientSession) -> None:
        self.front = front
        self.url = url
        self.http = http
        self.token = front.tokens["site"]
        self.allowances: Allowances = front.app.state.backend.allowances

    def head(self, *lines: str, token: str | None = None, path: str = "/link/v1/submit", method: str = "POST") -> bytes:
        """A request's head with these lines beside the usual ones."""
        usual = [f"{method} {path} HTTP/1.1", "Host: central", f"Authorization: Bearer {token or self.token}"]
        return "\r\n".join([*usual, "Content-Type: application/json", *lines, "", ""]).encode()

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        parts = urlsplit(self.url)
        _, raw = await asyncio.get_running_loop().create_connection(Raw, parts.hostname, parts.port)
        try:
            yield raw
        finally:
            raw.transport.abort()

    async def post(self, content: bytes, token: str | None = None, **headers: str) -> Reply:
        given = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json", **headers}
        async with self.http.post("/link/v1/submit", data=content, headers=given) as response:
            return Reply(response.status, dict(response.headers), await response.read())

    async def status(self, notification_id: str, token: str | None = None) -> int:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with self.http.get(f"/link/v1/status/{notification_id}", headers=headers) as response:
            return response.status

    @asynccontextmanager
    async def websocket(self, token: str | None = None, **more: Any) -> AsyncIterator[Any]:
        """A greeted WebSocket."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with self.http.ws_connect("/link/v1/data", headers=headers, **more) as websocket:
            assert isinstance(await receive(websocket), Hello)
            yield websocket

    async def tell(self, way: Way, content: bytes, token: str | None = None) -> Ack | Refusal:
        """Central's answer to these bytes; a problem of HTTP in the form that the WebSocket would give it."""
        if way == "websocket":
            async with self.websocket(token) as websocket:
                await websocket.send_bytes(content)
                answer = await receive(websocket)
                assert isinstance(answer, Ack | Refusal)
                return answer
        reply = await self.post(content, token)
        if reply.status == 200:
            return msgspec.json.decode(reply.body, type=Ack)
        assert 400 <= reply.status < 500, (reply.status, reply.body)
        return Refusal(reply.code, str(json.loads(reply.body)["detail"]))

    async def rows(self) -> tuple[int, int]:
        """How many notifications and audit entries of sends there are."""

        def count(conn: Connection) -> tuple[int, int]:
            notifications = conn.execute(text("select count(*) from notifications")).scalar_one()
            entries = conn.execute(text("select count(*) from audit where kind = 'notify_send'")).scalar_one()
            return int(notifications), int(entries)

        return await self.front.centre.store.read(count)

    async def is_alive(self) -> bool:
        """Whether the next honest site is served as if nothing had happened."""
        ack = await self.tell("websocket", encode(Submit(1, (self.front.centre.item(),))))
        async with self.http.get("/healthz") as health:
            return isinstance(ack, Ack) and ack.results[0].verdict == "accepted" and health.status == 200


async def receive(websocket: Any) -> LinkMessage:
    async with asyncio.timeout(DEADLINE_S):
        return decode(await websocket.receive_bytes())


@contextmanager
def without_bugs(caplog: pytest.LogCaptureFixture) -> Iterator[list[Any]]:
    """Whatever callers do, nothing is logged as central's own mistake. The log lines are given for other looks."""
    with capture_logs() as lines:
        yield lines
    bugs = [line for line in lines if line["log_level"] in ("error", "critical")]
    bugs += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert bugs == []


def submit_of(*items: Any, seq: int = 1, **more: Any) -> bytes:
    """A Submit as JSON; an item may be anything."""
    plain = [msgspec.to_builtins(item) if isinstance(item, msgspec.Struct) else item for item in items]
    return json.dumps({"t": "submit", "seq": seq, "items": plain, **more}).encode()
