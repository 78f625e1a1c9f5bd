"""The mail server on a loop and thread of its own, for tests without a loop: those that start real processes."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.record import Connection
from fieldpost.testing.mail.rules import Rule
from fieldpost.testing.mail.script import Moment, Verb
from fieldpost.testing.mail.server import MailServer

T = TypeVar("T")


class Gate:
    """An event for `Rule.wait` that any thread may open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await self._event.wait()


class MailServerThread:
    """A `MailServer` (which takes the same options) whose waits are plain calls.

    with MailServerThread() as server:
        server.on("dot").close().times(1)
        ...
        mails = server.received(1000, timeout_s=60)
    """

    def __init__(self, **options: Any) -> None:
        self._server = MailServer(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            self._run(self._server.__aexit__(kind, error, traceback))
        finally:
            self._end()

    @property
    def host(self) -> str:
        return self._server.host

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        """Listen again after `stop`, on the same port."""
        self._run(self._server.start())

    def stop(self) -> None:
        """Be away, as a server that is down; what was received stays."""
        self._run(self._server.stop())

    def on(
        self,
        verb: Verb,
        *,
        address: str | Callable[[str], bool] | None = None,
        when: Callable[[Moment], bool] | None = None,
    ) -> Rule:
        """Lay a rule. While mails already flow a half-told rule might act: then lay it whole, by `call`."""
        return self._server.on(verb, address=address, when=when)

    def behave(self) -> None:
        """Withdraw all rules."""
        self.call(lambda server: server.behave())

    def call(self, function: Callable[[MailServer], T]) -> T:
        """Run this in the server's thread: `thread.call(lambda server: server.on("dot").close().times(3))`."""

        async def run() -> T:
            return function(self._server)

        return self._run(run())

    def gate(self) -> Gate:
        """A gate for `Rule.wait`."""
        return Gate(self._loop)

    @property
    def mails(self) -> Sequence[ReceivedMail]:
        return self.call(lambda server: server.mails)

    @property
    def mail_count(self) -> int:
        return self._server.mail_count

    @property
    def connections(self) -> Sequence[Connection]:
        return self.call(lambda server: server.connections)

    def received(self, count: int = 1, *, to: str | None = None, timeout_s: float = 10) -> list[ReceivedMail]:
        return self._run(self._server.received(count, to=to, timeout_s=timeout_s))

    def saw(self, verb: Verb, count: int = 1, *, timeout_s: float = 10) -> None:
        self._run(self._server.saw(verb, count, timeout_s=timeout_s))

    def until(self, is_so: Callable[[], bool], *, timeout_s: float = 10, what: str = "it to be so") -> None:
        """Like `MailServer.until`; `is_so` is asked in the server's thread."""
        self._run(self._server.until(is_so, timeout_s=timeout_s, what=what))

    def idle(self, *, timeout_s: float = 10) -> None:
        self._run(self._server.idle(timeout_s=timeout_s))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
