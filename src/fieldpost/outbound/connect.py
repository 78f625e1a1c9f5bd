"""TCP connection to the first address that answers (Happy Eyeballs, RFC 8305), on any event loop.

An unresponsive address delays the next one by a quarter of a second, not by minutes.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest

from fieldpost.outbound.ranges import Address

STAGGER_S = 0.25


async def connect(addresses: Sequence[Address], port: int) -> socket.socket:
    """Return a connected socket, or raise the OSError of the first address if all fail. The caller sets a deadline."""
    waiting = _interleaved(addresses)
    running: list[asyncio.Task[socket.socket]] = []
    failed: dict[int, OSError] = {}
    try:
        while True:
            if waiting:
                running.append(asyncio.ensure_future(_connect(waiting.pop(0), port)))
            pending = [task for task in running if not task.done()]
            if pending:
                await asyncio.wait(pending, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED)
            for index, task in enumerate(running):
                if not task.done() or index in failed:
                    continue
                try:
                    won = task.result()
                except OSError as error:
                    failed[index] = error
                    continue
                running.remove(task)
                return won
            if not waiting and len(failed) == len(running):
                raise failed[0]
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close)


def _interleaved(addresses: Sequence[Address]) -> list[Address]:
    """Alternate address families, starting with the resolver's first choice."""
    first = [address for address in addresses if address.version == addresses[0].version]
    other = [address for address in addresses if address.version != addresses[0].version]
    return [address for pair in zip_longest(first, other) for address in pair if address is not None]


async def _connect(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, (str(address), port))
    except BaseException:
        made.close()
        raise
    return made


def _close(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that lost the race."""
    with suppress(OSError, asyncio.CancelledError):
        task.result().close()
