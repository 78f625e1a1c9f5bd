"""A tunnel through the HTTP proxy of `[outbound] proxy` (CONNECT, RFC 9110, 9.3.6).

Every request goes through a tunnel, also one to an `http` URL: only the answer to CONNECT shows whether the proxy or
the receiver failed. The proxy resolves names, so the guard checks only hosts that are written as addresses.
"""

import asyncio
import base64
import re
import socket

from fieldpost.core.text import printable_line
from fieldpost.outbound.options import ProxyServer

HEAD_BYTES_MAX = 16 * 1024
REASON_BYTES_MAX = 200
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?\r?\n")


class TunnelRefused(Exception):
    """The proxy did not open the tunnel. `is_unreachable`: because it could not reach the host."""

    def __init__(self, reason: str, *, is_unreachable: bool = False) -> None:
        super().__init__(reason)
        self.is_unreachable = is_unreachable


async def open_tunnel(made: socket.socket, proxy: ProxyServer, host: str, port: int) -> None:
    """Open a tunnel on a socket that is connected to the proxy. Raises TunnelRefused, OSError. The caller sets a
    deadline."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(made, _connect_head(proxy, host, port))
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(made, 4096)
        head += piece
        if not piece or len(head) > HEAD_BYTES_MAX:
            raise TunnelRefused("the proxy did not answer CONNECT with HTTP")
    found = _STATUS.match(head)
    if found is None:
        raise TunnelRefused("the proxy did not answer CONNECT with HTTP")
    status = int(found[1])
    if not 200 <= status < 300:
        phrase = printable_line((found[2] or b"").decode("latin-1"), REASON_BYTES_MAX)
        raise TunnelRefused(f"the proxy answered {status} {phrase}".rstrip(), is_unreachable=status >= 500)
    if not head.endswith(b"\r\n\r\n"):
        # The receiver of a tunnel speaks second, so these bytes are not its.
        raise TunnelRefused("the proxy sent more than its answer to CONNECT")


def _connect_head(proxy: ProxyServer, host: str, port: int) -> bytes:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.user:
        pair = base64.b64encode(f"{proxy.user}:{proxy.password.reveal()}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {pair}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
