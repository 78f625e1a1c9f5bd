"""What a site may call and write to, as `site.toml` defines it: external systems and database connections.

    [external.erp]
    url = "https://erp.example.com/api"
    secret_headers = {Authorization = "erp.secret"}

    [database.plant]
    url = "postgresql://fieldpost@db.example.com/plant"
    password_file = "plant.secret"
    statements.count = "INSERT INTO counts (call_id, unit, n) VALUES (:call_id, :unit, :n)"

How often and how long to try stands here and not on the message, so that changing it acts on what is buffered already.
Secrets stand in files of their own beside `site.toml`, and are read when they are used, since they are rotated.
"""

import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.site.config.database_url import DatabaseUrl, PostgresqlUrl, SqliteUrl, parse_place
from fieldpost.site.config.headers import check_header
from fieldpost.site.config.secret_files import read_secret
from fieldpost.site.config.statements import DefinedStatement, Dialect, parse_statement

if TYPE_CHECKING:
    from yarl import URL

NAME_RULE = "must be of letters, digits, - and _, at most 64, and begin with a letter"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """An external system: where scripts' calls go."""

    name: str
    """The section's name, by which scripts call the system: letters, digits, `-` and `_`."""
    folder: Path = field(default=Path(), repr=False)
    """The site's folder, to which the names of files are relative."""
    url: str
    """Where the system is, `https://…`; the path of a call is added to it. May be a private address or this machine."""
    allows_plain_http: bool = False
    """Whether the URL may begin with `http://` although the system is not on this machine."""
    timeout_s: float = 10.0
    """How long one attempt may take in all, from the name to the end of the answer."""
    retry_interval_s: float = 60.0
    """How long to wait after an attempt that failed for the moment: always the same. At most a day."""
    retries_max: int = 10
    """After so many retries a call is parked for a person to see; 0 means never."""
    ca_file: str | None = None
    """The authority of the system's certificate, where it is your own; relative to the folder."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every call, such as `{Accept = "application/json"}`; a call may have another value."""
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers whose values are secret: for each the file that holds it, mode 0600, relative to the folder."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_tries(self)
        _check_kind(self.allows_plain_http, bool, "allows_plain_http", "true or false")
        url = self.base
        if url.raw_query_string or self.url.endswith("?"):
            raise _refused("url", "must not have a query (?); a call brings its own")
        _check_file(self.ca_file, "ca_file")
        for option, table in (("headers", self.headers), ("secret_headers", self.secret_headers)):
            _check_kind(table, dict, option, "a table of names and texts")
            for header, value in table.items():
                _check_kind(value, str, f"{option}.{header}", "a text")
                is_secret = option == "secret_headers"
                if is_secret:
                    _check_file(value, f"{option}.{header}")
                check_header(header, "" if is_secret else value, f"{option}.{header}", is_defined=is_secret)
        twice = {name.lower() for name in self.headers} & {name.lower() for name in self.secret_headers}
        if twice:
            raise _refused("secret_headers", f"and headers both have {', '.join(sorted(twice))}")

    @property
    def base(self) -> "URL":
        """The URL as it is asked for. Raises InvalidInput."""
        # Here, so that a script of a site without external systems starts the faster.
        from fieldpost.outbound.url import check_url

        return check_url(self.url, "admin", is_plain_allowed=self.allows_plain_http)

    @property
    def retry_interval(self) -> timedelta:
        return timedelta(seconds=self.retry_interval_s)

    @property
    def ca_path(self) -> Path | None:
        return None if self.ca_file is None else self.folder / self.ca_file

    def check(self) -> None:
        """Raise ConfigError if what a call would need is not there: before the first call, for whoever sets it up."""
        self.secrets()
        tls_context(self.ca_path)

    def secrets(self) -> dict[str, Secret]:
        """The secret headers, read anew. Raises ConfigError for a file that is missing, malformed or open to others."""
        found = {}
        for header, file in self.secret_headers.items():
            key = f"external.{self.name}.secret_headers.{header}"
            found[header] = secret = read_secret(self.folder / file, key)
            try:
                check_header(header, secret.reveal(), key, is_defined=True)
            except InvalidInput:
                raise ConfigError(
                    "site.secret", f"{self.folder / file} ({key}) holds nothing that a header can", field=key
                ) from None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database connection: where scripts' writes go."""

    name: str
    """The section's name, by which scripts name the connection: letters, digits, `-` and `_`."""
    folder: Path = field(default=Path(), repr=False)
    """The site's folder, to which the names of files are relative."""
    url: str
    """`postgresql://user@host:port/database`, `postgresql://user@/database?host=/socket/folder`, or an SQLite file:
    `sqlite:////absolute/file`, `sqlite:///file` relative to the folder. Never with a password."""
    password_file: str | None = None
    """The file that holds the password, mode 0600, relative to the folder."""
    tls: bool | None = None
    """Whether to speak TLS to PostgreSQL and check its certificate. By default yes, unless it is on this machine."""
    ca_file: str | None = None
    """The authority of the server's certificate, where it is your own; relative to the folder."""
    timeout_s: float = 10.0
    """How long one attempt may take in all, connecting included; PostgreSQL is told so as `statement_timeout`."""
    retry_interval_s: float = 60.0
    """How long to wait after an attempt that failed for the moment: always the same. At most a day."""
    retries_max: int = 10
    """After so many retries a write is parked for a person to see; 0 means never."""
    allows_free_sql: bool = False
    """Whether scripts may give SQL of their own; otherwise only the statements defined here."""
    statements: Mapping[str, str] = field(default_factory=dict)
    """The statements that scripts may run, by name; parameters are written `:name`, and `:call_id` is always
    there."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_tries(self)
        _check_kind(self.allows_free_sql, bool, "allows_free_sql", "true or false")
        if self.tls is not None:
            _check_kind(self.tls, bool, "tls", "true or false")
        _check_file(self.password_file, "password_file")
        _check_file(self.ca_file, "ca_file")
        place = self.place
        if isinstance(place, SqliteUrl):
            for option in ("password_file", "tls", "ca_file"):
                if getattr(self, option) is not None:
                    raise _refused(option, "means nothing for an SQLite file")
            # A second user of the buffer would bypass all that keeps it whole.
            if place.path.resolve() == (self.folder / "buffer.db").resolve():
                raise _refused("url", "must not be the site's own buffer")
        _check_kind(self.statements, dict, "statements", "a table of names and SQL texts")
        for name, text in self.statements.items():
            key = f"statements.{name}"
            if not _NAME.fullmatch(name):
                raise _refused(key, f"has a name that is none; it {NAME_RULE}")
            parse_statement(text, self.dialect, key)
        if not self.statements and not self.allows_free_sql:
            raise _refused("statements", "must have one statement at least, unless allows_free_sql = true")

    @property
    def retry_interval(self) -> timedelta:
        return timedelta(seconds=self.retry_interval_s)

    @property
    def ca_path(self) -> Path | None:
        return None if self.ca_file is None else self.folder / self.ca_file

    @property
    def dialect(self) -> Dialect:
        return self.place.dialect

    @property
    def place(self) -> DatabaseUrl:
        return parse_place(self.url, self.folder)

    @property
    def speaks_tls(self) -> bool:
        """What `tls` comes to where it is not given."""
        if self.tls is not None:
            return self.tls
        from fieldpost.outbound.url import is_loopback

        place = self.place
        return isinstance(place, PostgresqlUrl) and place.is_on_network and not is_loopback(place.host)

    def check(self) -> None:
        """Raise ConfigError if what a write would need is not there: before the first write, for whoever sets it up."""
        self.password()
        tls_context(self.ca_path)
        if self.dialect == "postgresql" and find_spec("asyncpg") is None:
            raise no_driver(self)

    def password(self) -> Secret | None:
        """The password, read anew. Raises ConfigError for a file that is missing, malformed or open to others."""
        if self.password_file is None:
            return None
        return read_secret(self.folder / self.password_file, f"database.{self.name}.password_file")

    def statement(self, name_or_sql: str) -> DefinedStatement | None:
        """The defined statement of this name, or the free SQL where that is allowed; None for what is neither.

        Raises InvalidInput for free SQL that is no single write.
        """
        defined = self.statements.get(name_or_sql)
        if defined is not None:
            return parse_statement(defined, self.dialect, f"statements.{name_or_sql}")
        if self.allows_free_sql and not is_name(name_or_sql):
            return parse_statement(name_or_sql, self.dialect)
        return None


D = TypeVar("D", bound=External | Database)


def read_definitions(tables: Mapping[str, Any], kind: type[D], folder: Path, file: Path) -> dict[str, D]:
    """All definitions of one kind, by name. ConfigError names the file and the key that is wrong."""
    section = SECTIONS[kind]
    found: dict[str, D] = {}
    keys = defined_keys(kind)
    for name, values in tables.items():
        where = f"{section}.{name}"
        if not isinstance(values, dict):
            raise wrong(file, where, f"must be a section, written [{section}.NAME]")
        for key in values:
            if key not in keys:
                raise wrong(file, f"{where}.{key}", f"is unknown; there are: {', '.join(keys)}")
        if "url" not in values:
            raise wrong(file, f"{where}.url", "is missing")
        try:
            found[name] = kind(name=name, folder=folder, **values)
        except InvalidInput as error:
            # The message begins with the key that it is about, as a rule of that key does.
            key = error.field or ""
            rule = error.message.removeprefix(key).lstrip()
            raise wrong(file, where if key == "name" else f"{where}.{key}", rule) from None
    return found


def defined_keys(kind: type[Any]) -> tuple[str, ...]:
    """What a section may say: all fields but those that follow from where it stands."""
    return tuple(name for name in kind.__dataclass_fields__ if name not in ("name", "folder"))


def find_definition(definitions: Mapping[str, D], name: object, kind: type[D]) -> D:
    """The definition of this name, or InvalidInput: a target is defined or is none."""
    section = SECTIONS[kind]
    what = "external system" if kind is External else "database connection"
    found = definitions.get(name) if isinstance(name, str) else None
    if found is None:
        shown = repr(name[:64]) if isinstance(name, str) else type(name).__name__
        known = f"there are: {', '.join(sorted(definitions))}" if definitions else "there are none"
        raise InvalidInput(
            f"{section}.undefined",
            f"{shown} is no {what} that site.toml defines; {known}",
            hint=f"define it as [{section}.NAME] in site.toml",
            field=section,
        )
    return found


def is_name(text: str) -> bool:
    """Whether this may be the name of a definition or a statement; SQL never is, since it has more than one word."""
    return _NAME.fullmatch(text) is not None


def tls_context(ca_path: Path | None) -> ssl.SSLContext | None:
    """What trusts this authority, or None for the system's. Raises ConfigError when the file is of no use."""
    if ca_path is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_path))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("site.ca_file", f"the authority {ca_path} cannot be read: {error}") from None


def no_driver(definition: Database) -> ConfigError:
    return ConfigError(
        "database.no_driver",
        f"database.{definition.name} is PostgreSQL, and its driver asyncpg is not installed",
        hint='pip install "fieldpost[site-postgresql]"',
        field=f"database.{definition.name}.url",
    )


def wrong(file: Path, key: str, what: str) -> ConfigError:
    """What is said of every key of `site.toml` that is wrong."""
    return ConfigError("site.settings", f"{file}: {key} {what}", field=key)


SECTIONS: Mapping[type[Any], str] = {External: "external", Database: "database"}


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused("name", f"has a name that is none; it {NAME_RULE}")


def _check_tries(definition: External | Database) -> None:
    for option, low, high in (
        ("timeout_s", 0.05, 600.0),
        # A due time further away than the longest wait would count as one that the clock has jumped away from.
        ("retry_interval_s", 0.05, 86_400.0),
    ):
        value = getattr(definition, option)
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise _refused(option, f"must be a number from {low} to {high}, not {value!r}")
    if type(definition.retries_max) is not int or not 0 <= definition.retries_max <= 1_000_000:
        raise _refused("retries_max", f"must be a whole number from 0 to 1000000, not {definition.retries_max!r}")


def _check_file(value: object, option: str) -> None:
    if value is not None and (not isinstance(value, str) or not value or "\x00" in value):
        raise _refused(option, "must be the name of a file")


def _check_kind(value: object, kind: type[Any], option: str, what: str) -> None:
    if type(value) is not kind:
        raise _refused(option, f"must be {what}")


def _refused(option: str, rule: str) -> InvalidInput:
    return InvalidInput("option.invalid", f"{option} {rule}", field=option)
