"""How a process is told to stop."""

import asyncio
import signal
from contextlib import suppress


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT end the process in order; a second one ends it at once."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no such handlers; there Ctrl-C cancels the loop.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop, number)
