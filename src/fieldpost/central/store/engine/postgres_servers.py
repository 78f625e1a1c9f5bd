"""The PostgreSQL servers that a store URL names: a single one, or a primary and its standbys.

All connections of a node (pool, LISTEN, migrations) are made here. With several servers a connection goes to the first
one that accepts writes, so that after a failover the next connection finds the new primary. The server that worked last
is tried first, and each server has its own time limit: one that does not answer at all delays only the first connection
after its failure.
"""

import re
from typing import Any

import asyncpg
from sqlalchemy.engine import URL

from fieldpost.core.errors import ConfigError

Server = tuple[str | None, int | None]
"""Host and port; None stands for the driver's default."""

CONNECT_S = 10.0
"""How long a single server may take to accept a connection."""
CONNECT_EACH_S = 4.0
"""The same if there are others to try."""
_WRITABLE = {"any", "primary", "read-write"}
_TOKEN = re.compile(r"(\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:]+))(:(?P<port>\d*))?")
# The server is not the primary, does not run, is starting or stopping, or its machine does not answer.
_TRY_NEXT = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
)


def servers_of(url: URL) -> list[Server]:
    """The servers in `host=a,b&port=1,2`, `host=a:1,b:2`, `host=a:1&host=b:2` or before the path; ConfigError."""
    given = _values(url, "host")
    hosts = [_host(token) for token in given] if given else [(url.host, url.port)]
    ports = _values(url, "port")
    if len(ports) not in (0, 1, len(hosts)):
        raise _wrong(f"{len(hosts)} hosts need one port or {len(hosts)} ports, got {len(ports)}")
    if len(ports) < len(hosts):
        ports = (ports or [""]) * len(hosts)
    return [(host, _port(port) if port else own) for (host, own), port in zip(hosts, ports, strict=True)]


class PostgresServers:
    """The servers of one store."""

    def __init__(self, url: URL) -> None:
        self._servers = servers_of(url)
        rest = url.difference_update_query(["host", "port", "target_session_attrs"])
        self._dsn = rest.set(drivername="postgresql", host=None, port=None).render_as_string(hide_password=False)
        wanted = url.query.get("target_session_attrs", "read-write" if len(self._servers) > 1 else "any")
        if wanted not in _WRITABLE:
            raise _wrong(f"target_session_attrs must be read-write, primary or any, got {wanted!r}")
        self._wanted = wanted

    @property
    def is_single(self) -> bool:
        return len(self._servers) == 1

    async def connect(self, **options: Any) -> asyncpg.Connection:
        """A connection to the first server that accepts one. Raises OSError if none of several does."""
        if self.is_single:
            return await self._connect(self._servers[0], CONNECT_S, options)
        failures = []
        for server in list(self._servers):
            try:
                connection = await self._connect(server, CONNECT_EACH_S, options)
            except _TRY_NEXT as error:
                failures.append(f"{_name(server)}: {_reason(error)}")
                continue
            self._servers.sort(key=lambda one: one != server)
            return connection
        raise ConnectionError(f"none of the servers can be used ({'; '.join(failures)})")

    async def _connect(self, server: Server, timeout_s: float, options: dict[str, Any]) -> asyncpg.Connection:
        host, port = server
        return await asyncpg.connect(
            self._dsn, host=host, port=port, timeout=timeout_s, target_session_attrs=self._wanted, **options
        )


def _values(url: URL, name: str) -> list[str]:
    given = url.query.get(name, ())
    return [token for text in ([given] if isinstance(given, str) else given) for token in text.split(",")]


def _host(token: str) -> Server:
    if token.startswith("/"):
        return token, None  # the folder of a Unix socket
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise _wrong(f"a host must be written as name, name:port or [IPv6 address]:port, got {token!r}")
    return found["ipv6"] or found["host"], _port(found["port"]) if found["port"] else None


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise _wrong(f"a port must be between 1 and 65535, got {text!r}")
    return int(text)


def _name(server: Server) -> str:
    host, port = server
    return f"{host or 'localhost'}{'' if port is None else f':{port}'}"


def _reason(error: Exception) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "does not accept writes"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_EACH_S:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _wrong(message: str) -> ConfigError:
    return ConfigError("store.url", f"the store URL is invalid: {message}")
