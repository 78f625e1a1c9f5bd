"""Central's listening socket, and the reason why an address cannot be used."""

import errno
import os
import socket
from pathlib import Path

from fieldpost.core.errors import ConfigError

BACKLOG = 1024
PRIVILEGED_PORTS = 1024
LISTENS = "0A"
"""The state LISTEN in /proc/net/tcp."""


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError with the cause and a remedy."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        reason, hint = explain(error, port)
        raise ConfigError("central.listen", f"cannot listen on {host} port {port}: {reason}", hint=hint) from None
    return bound


def explain(error: OSError, port: int) -> tuple[str, str]:
    """Why a process cannot listen on this port, and a hint."""
    match error.errno:
        case errno.EADDRINUSE:
            user = port_user(port)
            return f"the port is in use{f' by {user}' if user else ''}", "stop that process, or choose another port"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have the address", "use an address of this machine, or 0.0.0.0 for all"
        case errno.EACCES if port < PRIVILEGED_PORTS:
            return (
                f"ports below {PRIVILEGED_PORTS} need root or the capability CAP_NET_BIND_SERVICE",
                "choose a higher port, or put a reverse proxy in front of central",
            )
        case _ if isinstance(error, socket.gaierror):
            return "the host name cannot be resolved", "use an address of this machine"
        case _:
            return os.strerror(error.errno) if error.errno else str(error), "check the host and the port"


def port_user(port: int) -> str | None:
    """The process that listens on this TCP port, such as `pid 4711 (nginx)`; None if that cannot be found out."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        try:
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                return f"pid {process.name} ({(process / 'comm').read_text(errors='replace').strip()})"
        except OSError:  # a process of another user, or one that just ended
            continue
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = [line.split() for line in Path(table).read_text(encoding="ascii").splitlines()[1:]]
        except OSError:  # not Linux
            continue
        inodes |= {row[9] for row in rows if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port}
    return inodes
