"""The port of a server for tests while the server is away: it stays the server's.

Bound and not listened on, it refuses whoever calls, as that of a server that is down; and no other program can get it
meanwhile, which else the server of another test might.
"""

import asyncio
import os
import socket
import weakref


class KeptPort:
    """One for a server: `leave` when it stops, `come_back` when it starts, `give_up` when it is not wanted any more."""

    def __init__(self) -> None:
        self._kept: socket.socket | None = None
        self._end: weakref.finalize[..., KeptPort] | None = None

    def leave(self, listener: asyncio.Server) -> None:
        """Listen no more, and keep the port. Where that cannot be done, it is free for anybody."""
        places = [(one.family, one.getsockname()) for one in listener.sockets]
        listener.close()
        # Elsewhere the option means that a port is shared; and a name with several addresses is not worth the trouble.
        if os.name != "posix" or len(places) != 1:
            return
        family, address = places[0]
        kept = socket.socket(family)
        # Connections that came by this port may still be ending.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            kept.bind(address)
        except OSError:
            kept.close()
            return
        self._kept, self._end = kept, weakref.finalize(self, kept.close)

    def come_back(self) -> socket.socket | None:
        """What to listen on, if the port was kept; it is the caller's now."""
        kept, self._kept = self._kept, None
        if self._end is not None:
            self._end.detach()
        return kept

    def give_up(self) -> None:
        """Let anybody have it."""
        kept = self.come_back()
        if kept is not None:
            kept.close()
