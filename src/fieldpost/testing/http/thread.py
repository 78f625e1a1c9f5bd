"""The HTTP server in its own thread."""

from collections.abc import Callable, Sequence
from typing import Any

from fieldpost.testing.http.rules import HttpRule, ReceivedRequest
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.thread import ServerThread


class HttpServerThread(ServerThread[HttpServer]):
    """An `HttpServer` (with the same options) for tests without an event loop.

    with HttpServerThread() as server:
        server.on("POST").answer(503).times(1)
        ...
        requests = server.received(2)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(HttpServer(**options))

    @property
    def url(self) -> str:
        return self._server.url

    def on(
        self,
        method: str | None = None,
        path: str | None = None,
        *,
        when: Callable[[ReceivedRequest], bool] | None = None,
    ) -> HttpRule:
        """Add a rule. If requests are already arriving, add and configure it in one `call`."""
        return self._server.on(method, path, when=when)

    @property
    def requests(self) -> Sequence[ReceivedRequest]:
        return self.call(lambda server: server.requests)

    def received(self, count: int = 1, *, timeout_s: float = 30) -> Sequence[ReceivedRequest]:
        return self._run(self._server.received(count, timeout_s=timeout_s))
