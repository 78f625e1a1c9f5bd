"""The accept loop of our own listeners: it pauses when the process has no free file descriptor.

The event loop's server would log a traceback per pending connection and try again at once.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

RETRY_S = 1.0
"""The pause after a socket could not be accepted, for example without free file descriptors."""


async def accept_forever(
    listening: socket.socket,
    on_accepted: Callable[[socket.socket, Any], Awaitable[None]],
    on_failure: Callable[[OSError], None],
) -> None:
    """Pass each accepted socket on, with the address of its client, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, address = await loop.sock_accept(listening)
        except ConnectionError:
            continue
        except OSError as error:
            on_failure(error)
            await asyncio.sleep(RETRY_S)
            continue
        await on_accepted(accepted, address)
        # A socket that is already there is accepted without a pause: let the others run.
        await asyncio.sleep(0)
