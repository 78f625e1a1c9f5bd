"""Running a process on an event loop until a signal stops it."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


def run_process(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, which is faster, where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Set `stopping` on SIGTERM or SIGINT; a second signal ends the process immediately."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Not on Windows, where Ctrl-C cancels the loop.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop, number)
