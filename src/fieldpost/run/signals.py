"""Stopping a process by signals."""

import asyncio
import signal
from contextlib import suppress


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
