"""The definition of a database connection in `site.toml`.

[database.plant]
url = "postgresql://fieldpost@db.example.com/plant"
password_file = "plant.secret"
statements.count = "INSERT INTO counts (call_id, unit, n) VALUES (:call_id, :unit, :n)"
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from fieldpost.core.errors import ConfigError
from fieldpost.core.secret import Secret
from fieldpost.site.config.database_url import DatabaseUrl, PostgresqlUrl, SqliteUrl, parse_place
from fieldpost.site.config.secret_files import read_secret
from fieldpost.site.config.statements import DefinedStatement, Dialect, parse_statement
from fieldpost.site.config.target import (
    NAME_RULE,
    TargetDefinition,
    check_file_name,
    check_type,
    is_name,
    refused,
    tls_context,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database(TargetDefinition):
    """A database connection that scripts write to."""

    url: str
    """`postgresql://user@host:port/database`, `postgresql://user@/database?host=/socket/folder`, or an SQLite file:
    `sqlite:////absolute/file`, `sqlite:///file` relative to the folder. Without a password."""
    password_file: str | None = None
    """The file with the password, mode 0600, relative to the folder."""
    tls: bool | None = None
    """Whether to use TLS with PostgreSQL and check its certificate. Default: yes, unless it is on this machine."""
    allows_free_sql: bool = False
    """Whether scripts may pass SQL; otherwise only the statements defined here."""
    statements: Mapping[str, str] = field(default_factory=dict)
    """The statements that scripts may run, by name. Parameters are written `:name`; `:call_id` is always available."""

    def __post_init__(self) -> None:
        self._check_shared()
        check_type(self.allows_free_sql, bool, "allows_free_sql", "true or false")
        if self.tls is not None:
            check_type(self.tls, bool, "tls", "true or false")
        check_file_name(self.password_file, "password_file")
        place = self.place
        if isinstance(place, SqliteUrl):
            for option in ("password_file", "tls", "ca_file"):
                if getattr(self, option) is not None:
                    raise refused(option, "does not apply to an SQLite file")
            # Another user of the buffer would bypass the locks that protect it.
            if place.path.resolve() == (self.folder / "buffer.db").resolve():
                raise refused("url", "must not be the site's own buffer")
        check_type(self.statements, dict, "statements", "a table of names and SQL statements")
        for name, text in self.statements.items():
            key = f"statements.{name}"
            if not is_name(name):
                raise refused(key, f"has an invalid name; a name {NAME_RULE}")
            parse_statement(text, self.dialect, key)
        if not self.statements and not self.allows_free_sql:
            raise refused("statements", "must have at least one statement, unless allows_free_sql = true")

    @property
    def dialect(self) -> Dialect:
        return self.place.dialect

    @property
    def place(self) -> DatabaseUrl:
        return parse_place(self.url, self.folder)

    @property
    def speaks_tls(self) -> bool:
        """The effective value of `tls`."""
        if self.tls is not None:
            return self.tls
        from fieldpost.outbound.url import is_loopback

        place = self.place
        return isinstance(place, PostgresqlUrl) and place.is_on_network and not is_loopback(place.host)

    def check(self) -> None:
        """Raise ConfigError if a file or driver that a write needs is missing or unusable."""
        self.password()
        tls_context(self.ca_path)
        if self.dialect == "postgresql" and find_spec("asyncpg") is None:
            raise no_driver(self)

    def password(self) -> Secret | None:
        """The password, read again each time, since secrets are rotated. Raises ConfigError for an unusable file."""
        if self.password_file is None:
            return None
        return read_secret(self.folder / self.password_file, f"database.{self.name}.password_file")

    def statement(self, name_or_sql: str) -> DefinedStatement | None:
        """The defined statement with this name, or the SQL if that is allowed; None otherwise.

        Raises InvalidInput for SQL that is not a single write.
        """
        defined = self.statements.get(name_or_sql)
        if defined is not None:
            return parse_statement(defined, self.dialect, f"statements.{name_or_sql}")
        if self.allows_free_sql and not is_name(name_or_sql):
            return parse_statement(name_or_sql, self.dialect)
        return None


def no_driver(definition: Database) -> ConfigError:
    return ConfigError(
        "database.no_driver",
        f"database.{definition.name} is PostgreSQL, and its driver asyncpg is not installed",
        hint='pip install "fieldpost[site-postgresql]"',
        field=f"database.{definition.name}.url",
    )
