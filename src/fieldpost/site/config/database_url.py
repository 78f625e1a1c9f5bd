"""The URL of a database definition, parsed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fieldpost.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """An SQLite file on this machine."""

    path: Path
    dialect: Literal["sqlite"] = "sqlite"


@dataclass(frozen=True, slots=True)
class PostgresqlUrl:
    """A PostgreSQL server and database."""

    host: str
    """A host, or the folder of a Unix socket."""
    port: int
    user: str
    database: str
    dialect: Literal["postgresql"] = "postgresql"

    @property
    def is_on_network(self) -> bool:
        return not self.host.startswith("/")


DatabaseUrl = SqliteUrl | PostgresqlUrl


def parse_place(url: object, folder: Path) -> DatabaseUrl:
    """The parsed URL; a relative file is in the folder. Raises InvalidInput."""
    if type(url) is not str:
        raise _refused("must be a string")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("is not a valid URL") from None
    if parts.password is not None:
        raise _refused("must not contain a password; put it into a file and set password_file")
    if parts.scheme == "sqlite":
        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or parts.query or parts.fragment or not path or "\x00" in path:
            raise _refused("must be sqlite:////absolute/file or sqlite:///relative/file")
        return SqliteUrl(folder / path)
    if parts.scheme not in ("postgresql", "postgres"):
        raise _refused("must start with postgresql:// or sqlite:///")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = unquote(parts.hostname or "") or query.pop("host", "")
    if query or parts.fragment:
        raise _refused("must have no option after the ? except host; use tls and ca_file for TLS")
    database = unquote(parts.path).removeprefix("/")
    if not host or not parts.username or not database or "/" in database:
        raise _refused("must be postgresql://user@host/database")
    return PostgresqlUrl(host, port or 5432, unquote(parts.username), database)


def _refused(rule: str) -> InvalidInput:
    return InvalidInput("option.invalid", f"url {rule}", field="url")
