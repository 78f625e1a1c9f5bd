"""Database URLs: parse one, and open the store that it names."""

from sqlalchemy.engine import URL, make_url

from fieldpost.central.store.engine.postgres_store import LEASE_S, PostgresStore
from fieldpost.central.store.engine.sqlite_store import SqliteStore
from fieldpost.central.store.engine.store import Store
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError


def open_store(url: str, clock: Clock | None = None, lease_s: float = LEASE_S) -> Store:
    """The store at this URL: `sqlite:///relative/file`, `sqlite:////absolute/file` or `postgresql://…`.

    `lease_s` is the shortest lease that nodes take on the store.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteStore(parsed, clock or SystemClock())
    return PostgresStore(parsed, clock, lease_s=lease_s)


def parse_url(url: str) -> URL:
    """Check that the URL names a PostgreSQL database or a SQLite file; ConfigError otherwise."""
    try:
        parsed = make_url(url)
    except Exception:
        raise ConfigError("store.url", "the store must be a URL such as sqlite:///fieldpost.db") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError("store.url", f"the store must be sqlite or postgresql, not {parsed.get_backend_name()}")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("store.url", "the store must name a file: an in-memory database would lose accepted messages")
    return parsed
