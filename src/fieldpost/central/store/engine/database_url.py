"""Database URLs: parse one, and open the store that it names."""

import re
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url

from fieldpost.central.store.engine.postgres_servers import PostgresServers
from fieldpost.central.store.engine.postgres_store import LEASE_S, PostgresStore
from fieldpost.central.store.engine.sqlite_store import SqliteStore
from fieldpost.central.store.engine.store import Store
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError

_SEVERAL_HOSTS = re.compile(r"(?P<before>\w+://([^/?]*@)?)(?P<hosts>[^/?@]*,[^/?@]*)(?P<after>.*)", re.DOTALL)


def open_store(url: str, clock: Clock | None = None, lease_s: float = LEASE_S) -> Store:
    """The store at this URL: `sqlite:///relative/file`, `sqlite:////absolute/file` or `postgresql://…`.

    `lease_s` is the shortest lease that nodes take on the store.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteStore(parsed, clock or SystemClock())
    return PostgresStore(parsed, clock, lease_s=lease_s)


def parse_url(url: str) -> URL:
    """Check that the URL names a PostgreSQL database or a SQLite file; ConfigError otherwise.

    Several hosts of PostgreSQL may be written in any form of `postgres_servers.servers_of`.
    """
    several = _SEVERAL_HOSTS.fullmatch(url)
    try:
        parsed = make_url(url if several is None else f"{several['before']}{several['after']}")
    except Exception:
        raise ConfigError("store.url", "the store must be a URL such as sqlite:///fieldpost.db") from None
    if parsed.drivername == "postgres":
        parsed = parsed.set(drivername="postgresql")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError("store.url", f"the store must be sqlite or postgresql, not {parsed.get_backend_name()}")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("store.url", "the store must name a file: an in-memory database would lose accepted messages")
    if several is not None:
        parsed = parsed.update_query_dict({"host": unquote(several["hosts"])})
    if parsed.get_backend_name() == "postgresql":
        PostgresServers(parsed)
    return parsed
