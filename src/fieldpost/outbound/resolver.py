"""Name resolution by the operating system, in separate threads: a silent name server stalls only lookups of its names.

Theory of operation. `getaddrinfo` blocks while the name server is silent, for half a minute or more, and cannot be
interrupted. Each lookup therefore runs in a new daemon thread. A `ThreadPoolExecutor` does not fit: the interpreter
waits for its threads at exit, so a hung lookup would delay the shutdown.

- Callers for the same name share one lookup with one deadline. At the deadline all of them get `LookupTimeout`, while
  the thread continues. Later callers get the failure at once until the thread ends. A late answer is cached.
- At most `LOOKUPS_MAX` lookups run at a time. A lookup that takes longer than `LONG_S` moves to the *hung* lookups, of
  which there are at most `HUNG_MAX`, and another name takes its place.
- A name whose lookup passed the deadline, or failed after `LONG_S`, is a *suspect* until it is answered, or for
  `SUSPECT_S`. Lookups of suspects start among the hung ones, so names known to hang never take a place from others.
- Answers are cached for `CACHE_S`, failures are not. The guard checks cached addresses again for every connection.

Limit: if more than `LOOKUPS_MAX + HUNG_MAX` names hang that are not suspects yet, other names wait until the system
gives up one of the lookups. Afterwards these names are suspects.

All state belongs to the event loop; a thread only returns its result to it. Use a resolver from one event loop.
"""

import asyncio
import socket
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import structlog

from fieldpost.clock import Clock, SystemClock

LOOKUP_TIMEOUT_S = 15.0
"""Longer than the system waits for the first name server (5 s) before it queries the second."""
LOOKUPS_MAX = 32
LONG_S = 0.25
HUNG_MAX = 256
CACHE_S = 5.0
SUSPECT_S = 600.0
NAMES_MAX = 10_000
"""How many answers are cached, and how many suspects are remembered."""

Lookup = Callable[[str], Sequence[str]]
"""Resolves a name to addresses; blocks. Raises OSError (including socket.gaierror) if there are none."""

V = TypeVar("V")

log = structlog.get_logger()


class LookupTimeout(socket.gaierror):
    """The name was not resolved in time: a temporary failure."""

    def __init__(self, name: str, timeout_s: float, is_started: bool) -> None:
        cause = "the name server did not answer" if is_started else "too many other lookups are running"
        super().__init__(socket.EAI_AGAIN, f"{name} was not resolved within {timeout_s:g} s: {cause}")


def look_up(name: str) -> Sequence[str]:
    """Resolve a name by the operating system; blocks."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except ValueError:  # including UnicodeError
        raise socket.gaierror(socket.EAI_NONAME, "not a valid host name") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class SystemResolver:
    """Resolves names for one event loop. Needs no closing: threads end with their lookups or with the process."""

    def __init__(
        self, timeout_s: float = LOOKUP_TIMEOUT_S, *, look_up: Lookup = look_up, clock: Clock | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._look_up = look_up
        self._clock = clock or SystemClock()
        self._answers: OrderedDict[str, tuple[float, Sequence[str]]] = OrderedDict()
        """Addresses by name, each with the end of its validity; oldest first."""
        self._suspects: OrderedDict[str, float] = OrderedDict()
        self._pending: dict[str, _PendingLookup] = {}
        """Lookups that wait for a thread or have one, by name."""
        self._queue: deque[_PendingLookup] = deque()
        self._suspect_queue: deque[_PendingLookup] = deque()
        self._running: set[_PendingLookup] = set()
        self._hung: set[_PendingLookup] = set()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Resolve a host to addresses. Raises OSError: LookupTimeout, or the error of the system."""
        name = host.lower()
        ends_at, addresses = self._answers.get(name, (0.0, ()))
        if addresses and self._clock.monotonic() < ends_at:
            return addresses
        pending = self._pending.get(name) or self._submit(name)
        result = await asyncio.shield(pending.result)
        match result:
            case OSError():
                # A new exception for each caller: a shared one would collect their tracebacks.
                raise type(result)(*result.args)
            case None:
                raise LookupTimeout(name, self._timeout_s, pending.is_started)
            case _:
                return result

    def _submit(self, name: str) -> "_PendingLookup":
        loop = asyncio.get_running_loop()
        pending = _PendingLookup(name, loop)
        pending.timers.append(loop.call_later(self._timeout_s, self._expire, pending))
        self._pending[name] = pending
        is_suspect = self._clock.monotonic() < self._suspects.get(name, 0.0)
        (self._suspect_queue if is_suspect else self._queue).append(pending)
        self._schedule()
        return pending

    def _schedule(self) -> None:
        """Move long lookups to the hung ones, then start waiting lookups, as far as there is room."""
        if len(self._hung) < HUNG_MAX:
            long = [pending for pending in self._running if pending.is_long][: HUNG_MAX - len(self._hung)]
            self._running.difference_update(long)
            self._hung.update(long)
        while self._queue and len(self._running) < LOOKUPS_MAX:
            self._start(self._queue.popleft(), self._running)
        while self._suspect_queue and len(self._hung) < HUNG_MAX:
            self._start(self._suspect_queue.popleft(), self._hung)

    def _start(self, pending: "_PendingLookup", group: "set[_PendingLookup]") -> None:
        if pending.result.done():  # expired while waiting
            return
        thread = threading.Thread(target=self._run, args=(pending,), name="lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            failure = OSError(f"no thread for name resolution: {error}")
            pending.loop.call_soon(self._finish, pending, failure)
            return
        pending.is_started = True
        group.add(pending)
        pending.timers.append(pending.loop.call_later(LONG_S, self._note_long, pending))

    def _run(self, pending: "_PendingLookup") -> None:
        """The body of a thread."""
        result: Sequence[str] | OSError
        try:
            result = self._look_up(pending.name)
        except OSError as error:
            result = error
        except Exception as error:
            result = OSError(f"name resolution failed: {error!r}")
        with suppress(RuntimeError):  # the event loop was closed in the meantime
            pending.loop.call_soon_threadsafe(self._finish, pending, result)

    def _note_long(self, pending: "_PendingLookup") -> None:
        pending.is_long = True
        self._schedule()

    def _expire(self, pending: "_PendingLookup") -> None:
        """Fail the callers at the deadline. A started lookup stays pending until its thread ends."""
        if not pending.result.done():
            pending.result.set_result(None)
        if not pending.is_started:
            del self._pending[pending.name]
            return
        log.warning("lookup.timed_out", host=pending.name, timeout_s=self._timeout_s, hung=len(self._hung))
        self._suspect(pending.name)

    def _finish(self, pending: "_PendingLookup", result: "Sequence[str] | OSError") -> None:
        for timer in pending.timers:
            timer.cancel()
        self._running.discard(pending)
        self._hung.discard(pending)
        del self._pending[pending.name]
        if not isinstance(result, OSError):
            _keep(self._answers, pending.name, (self._clock.monotonic() + CACHE_S, result))
        if isinstance(result, OSError) and pending.is_long:
            self._suspect(pending.name)
        else:
            self._suspects.pop(pending.name, None)
        if not pending.result.done():
            pending.result.set_result(result)
        self._schedule()

    def _suspect(self, name: str) -> None:
        _keep(self._suspects, name, self._clock.monotonic() + SUSPECT_S)


class _PendingLookup:
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.loop = loop
        self.result: asyncio.Future[Sequence[str] | OSError | None] = loop.create_future()
        """None: the deadline has passed."""
        self.timers: list[asyncio.TimerHandle] = []
        self.is_started = False
        self.is_long = False


def _keep(kept: OrderedDict[str, V], name: str, value: V) -> None:
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > NAMES_MAX:
        kept.popitem(last=False)
