"""`Relay`: the relay as a thread of the application.

    from fieldpost.outbox import Relay, RelayOptions

    relay = Relay(RelayOptions(database="postgresql://…", url="https://central.example", token_file="token"))
    relay.start()       # after a fork, in the worker that is to run it
    …
    relay.stop()

The thread has its own event loop and its own database connections. It does not survive a fork: a child that wants a
relay starts its own.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from types import ModuleType

from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict
from fieldpost.outbox.relay.options import RelayOptions

log = logging.getLogger("fieldpost.relay")

STOP_S = 30.0


class Relay:
    """A relay in a thread of this process."""

    def __init__(self, options: RelayOptions, *, sqlite: ModuleType | None = None, clock: Clock | None = None) -> None:
        """`sqlite` is the module with which the application opens its SQLite file; by default `sqlite3`."""
        self._options = options
        self._sqlite = sqlite
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._process = 0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._wake: Callable[[], None] | None = None
        self._failure: list[Exception] = []

    @property
    def is_running(self) -> bool:
        return self._process == os.getpid() and self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. Raises Conflict if it runs, and ConfigError for settings or tables that cannot work."""
        if self.is_running:
            raise Conflict("relay.running", "this relay is running")
        self._process = os.getpid()
        self._ready, self._failure = threading.Event(), []
        self._thread = threading.Thread(target=self._run, name="fieldpost-relay", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure:
            self._thread.join()
            raise self._failure[0]

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Finish the batches in flight and end the thread; whether it ended in time. Without effect after a fork."""
        if not self.is_running or self._loop is None or self._stopping is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Look for new rows now, after a commit for example; without it the relay polls."""
        if self.is_running and self._wake is not None:
            self._wake()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:
            if self._ready.is_set():
                log.exception("relay.crashed")
            self._failure.append(error)
        finally:
            self._ready.set()

    async def _main(self) -> None:
        from fieldpost.outbox.relay.relay import RelayLoop

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        loop = RelayLoop(self._options, clock=self._clock, sqlite=self._sqlite)
        self._wake = loop.wake
        await loop.run(self._stopping, on_started=self._ready.set)
