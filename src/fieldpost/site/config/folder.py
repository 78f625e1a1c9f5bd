"""A site's folder: `site.toml` (settings), `token` (for central, mode 0600), `buffer.db`, and secret files.

An error in any of them is a ConfigError that names the file and the key; nothing is guessed.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from fieldpost.core.errors import ConfigError, Conflict, InvalidInput
from fieldpost.core.text import check_label, check_path_name
from fieldpost.link.credentials import prefix_of
from fieldpost.link.endpoint import Endpoint, check_central_url, check_central_urls
from fieldpost.outbound.options import OutboundOptions
from fieldpost.site.config.database import Database
from fieldpost.site.config.definitions import read_definitions, wrong
from fieldpost.site.config.external import External
from fieldpost.site.config.options import (
    BufferOptions,
    CallOptions,
    EventOptions,
    ForwardOptions,
    LocalOptions,
    PairOptions,
    ReportOptions,
    TrackingOptions,
)

SETTINGS_FILE = "site.toml"
TOKEN_FILE = "token"
BUFFER_FILE = "buffer.db"
SETTINGS_BYTES_MAX = 1024 * 1024

OPTIONS: dict[str, type[Any]] = {
    "forward": ForwardOptions,
    "outbound": OutboundOptions,
    "calls": CallOptions,
    "buffer": BufferOptions,
    "tracking": TrackingOptions,
    "events": EventOptions,
    "local": LocalOptions,
    "report": ReportOptions,
    "pair": PairOptions,
}
_KEYS = {"site": {"name", "node"}, "central": {"url", "urls", "ca_file", "allow_plain"}} | {
    section: {field.name for field in fields(kind)} for section, kind in OPTIONS.items()
}
_DEFINITIONS = ("external", "database")
"""Sections with subsections, whose names are free."""

O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True, slots=True)
class Folder:
    """The settings of `site.toml`, and the paths of the other files."""

    path: Path
    name: str
    central_url: str
    ca_file: Path | None
    forward: ForwardOptions
    outbound: OutboundOptions = field(default_factory=OutboundOptions)
    externals: Mapping[str, External] = field(default_factory=dict)
    databases: Mapping[str, Database] = field(default_factory=dict)
    calls: CallOptions = field(default_factory=CallOptions)
    buffer: BufferOptions = field(default_factory=BufferOptions)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    events: EventOptions = field(default_factory=EventOptions)
    report: ReportOptions = field(default_factory=ReportOptions)
    local: LocalOptions = field(default_factory=LocalOptions)
    pair: PairOptions = field(default_factory=PairOptions)
    more_urls: tuple[str, ...] = ()
    """Additional addresses of the same central."""
    allow_plain: bool = False
    """Whether the token may be sent over plain HTTP to another machine."""
    node: int = 0
    """The node of the site's pair that this folder's token belongs to; 0 for a single site."""

    @property
    def buffer_path(self) -> Path:
        return self.path / BUFFER_FILE

    @property
    def definitions(self) -> "list[External | Database]":
        """All targets that scripts may call or write to."""
        return [*self.externals.values(), *self.databases.values()]

    def endpoint(self) -> Endpoint:
        """Central's addresses with the site's token, which is read each time, since tokens are rotated."""
        token = read_token(self.path / TOKEN_FILE)
        endpoint = Endpoint(self.central_url, token, self.ca_file, self.more_urls, self.allow_plain)
        endpoint.refuse_plain()
        return endpoint


def read_folder(path: Path) -> Folder:
    """The checked settings of the folder. Raises ConfigError naming the missing or invalid key."""
    file = path / SETTINGS_FILE
    hint = f"create one: fieldpost site init {path} --name NAME --central URL"
    if not path.is_dir():
        raise ConfigError("site.no_folder", f"the site folder {path} does not exist", hint=hint)
    try:
        settings = tomllib.loads(_read_text(file))
    except FileNotFoundError:
        raise ConfigError("site.no_settings", f"{path} does not contain {SETTINGS_FILE}", hint=hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("site.settings", f"{file} cannot be read: {error}") from None
    _refuse_unknown(settings, file)
    ca_file = settings.get("central", {}).get("ca_file")
    if ca_file is not None and not isinstance(ca_file, str):
        raise wrong(file, "central.ca_file", "must be the path of a file")
    allow_plain = settings.get("central", {}).get("allow_plain", False)
    if not isinstance(allow_plain, bool):
        raise wrong(file, "central.allow_plain", f"must be true or false, got {allow_plain!r}")
    node = settings.get("site", {}).get("node", 0)
    if type(node) is not int or node not in (0, 1):
        raise wrong(file, "site.node", f"must be 0 or 1, got {node!r}")
    try:
        name = check_path_name(check_label(_required(settings, file, "site", "name"), "site.name"), "site.name")
        urls = _central_urls(settings, file)
    except (InvalidInput, ConfigError) as error:
        raise ConfigError(error.code, f"{file}: {error.message}", hint=error.hint, field=error.field) from None
    return Folder(
        path=path,
        name=name,
        central_url=urls[0],
        more_urls=urls[1:],
        ca_file=None if ca_file is None else path / ca_file,
        allow_plain=allow_plain,
        node=node,
        externals=read_definitions(settings.get("external", {}), External, path, file),
        databases=read_definitions(settings.get("database", {}), Database, path, file),
        **{section: _options(settings.get(section, {}), kind, file, section) for section, kind in OPTIONS.items()},
    )


def _read_text(file: Path) -> str:
    with file.open("rb") as stream:
        content = stream.read(SETTINGS_BYTES_MAX + 1)
    if len(content) > SETTINGS_BYTES_MAX:
        raise ConfigError("site.settings", f"{file} must be at most {SETTINGS_BYTES_MAX} bytes")
    return content.decode("utf-8")


def create_folder(
    path: Path, name: str, central_url: str, token: str, ca_file: Path | None = None, *, allow_plain: bool = False
) -> Folder:
    """Create the folder and its files. Raises Conflict if it is already a site's."""
    check_path_name(check_label(name, "name"), "name")
    Endpoint(check_central_url(central_url), "", allow_plain=allow_plain).refuse_plain()
    token = _check_token(token.strip(), "the token")
    make_folder(path)
    # The token first: settings mark the folder as complete.
    write_new(path / TOKEN_FILE, token + "\n", 0o600)
    return write_settings(path, name, central_url, ca_file, allow_plain=allow_plain)


def make_folder(path: Path) -> None:
    """Create the folder if it does not exist. Raises ConfigError if that fails."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("site.folder", f"the folder {path} cannot be created: {error.strerror or error}") from None


def write_settings(
    path: Path, name: str, central_url: str, ca_file: Path | None = None, node: int = 0, *, allow_plain: bool = False
) -> Folder:
    """Create `site.toml` in a folder that has its token. Raises Conflict if it exists."""
    ca_line = "" if ca_file is None else f"ca_file = {toml_text(str(ca_file.resolve()))}\n"
    url = check_central_url(central_url)
    plain_line = "allow_plain = true\n" if allow_plain else ""
    node_line = f"node = {node}\n" if node else ""
    text = f"[site]\nname = {toml_text(name)}\n{node_line}\n[central]\nurl = {toml_text(url)}\n{ca_line}{plain_line}"
    write_new(path / SETTINGS_FILE, text, 0o644)
    return read_folder(path)


def read_token(file: Path) -> str:
    """The site's token. Raises ConfigError if it is missing, malformed or readable by other users."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise ConfigError(
            "site.no_token",
            f"the token file {file} does not exist",
            hint="at central, run: fieldpost sites rotate-token NAME; it prints the command to run here",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("site.token", f"the token file {file} cannot be read: {error}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "site.token_open",
            f"the token file {file} can be read by other users (mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {file}",
        )
    return _check_token(text, f"the token file {file}")


def _check_token(text: str, where: str) -> str:
    if prefix_of(text, "site") is None:
        raise ConfigError(
            "site.token", f"{where} does not contain a site token", hint="a site token starts with fp_site_"
        )
    return text


def write_new(file: Path, text: str, mode: int) -> None:
    """Create the file and sync it. Raises Conflict if it exists, and ConfigError if that fails."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise Conflict("site.exists", f"{file} already exists", hint="choose another folder, or edit it") from None
    except OSError as error:
        raise ConfigError("site.folder", f"{file} cannot be created: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ConfigError("site.folder", f"{file} cannot be written: {error.strerror or error}") from None


def _refuse_unknown(settings: dict[str, Any], file: Path) -> None:
    for section, values in settings.items():
        if section not in _KEYS and section not in _DEFINITIONS:
            raise wrong(file, section, f"is unknown; known sections: {', '.join((*_KEYS, *_DEFINITIONS))}")
        if not isinstance(values, dict):
            raise wrong(file, section, f"must be a section, written [{section}]")
        for key in values if section in _KEYS else ():
            if key not in _KEYS[section]:
                raise wrong(file, f"{section}.{key}", f"is unknown; known keys: {', '.join(sorted(_KEYS[section]))}")


def _central_urls(settings: dict[str, Any], file: Path) -> tuple[str, ...]:
    """The addresses in `url`, `urls`, or both."""
    central = settings.get("central", {})
    if "urls" not in central:
        return (check_central_url(_required(settings, file, "central", "url")),)
    urls = central["urls"]
    return check_central_urls([central["url"], *urls] if "url" in central and isinstance(urls, list) else urls)


def _required(settings: dict[str, Any], file: Path, section: str, key: str) -> object:
    try:
        return settings[section][key]
    except KeyError:
        raise ConfigError("site.settings", f"[{section}] {key} is missing", field=f"{section}.{key}") from None


def _options(values: dict[str, Any], kind: type[O], file: Path, section: str) -> O:
    try:
        return kind(**values)
    except InvalidInput as error:
        raise wrong(file, f"{section}.{error.field}", error.message) from None
    except ConfigError as error:
        raise ConfigError(error.code, f"{file}: {error.message}", hint=error.hint, field=error.field) from None


def toml_text(text: str) -> str:
    """The text, which has no control characters, as a TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
