"""Settings of central: read once at start, from a TOML file and the environment.

Each package has an Options dataclass beside the code that uses it, with a default, a unit in the name and a description
of each field. This module only nests them: `FIELDPOST_DISPATCH__INTERVAL_S` in the environment is `interval_s` of the
section `[dispatch]` and has precedence over the file. An unknown key or a value of the wrong type is an error that
names it: a setting that is silently ignored is worse than none.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.oidc_options import OidcOptions
from fieldpost.central.adapters.email.options import EmailOptions
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.mirror import MirrorOptions
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import IngestOptions
from fieldpost.central.operate.intents import IntentOptions
from fieldpost.central.secrets.key_files import SecretsOptions
from fieldpost.central.upkeep.options import AuditOptions, UpkeepOptions
from fieldpost.central.watch.watch import WatchOptions
from fieldpost.core.errors import ConfigError
from fieldpost.front.options import FrontOptions
from fieldpost.outbound.options import OutboundOptions

DEFAULT_FILE = Path("fieldpost.toml")
FILE_BYTES_MAX = 1024 * 1024
PREFIX = "FIELDPOST_"
# Read by the command line, not settings.
_OTHERS = {"URL", "TOKEN", "TOKEN_FILE", "FOLDER", "SITE_TOKEN", "TRACEBACK", "ALLOW_PLAIN"}


@dataclass(frozen=True, slots=True)
class CentralOptions:
    """[central]"""

    folder: str = "fieldpost-data"
    """The folder of the embedded database and the first API token."""
    store: str = ""
    """URL of the central store; empty for a SQLite file in the folder."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8025
    """The port to listen on; 0 takes any free port."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(
                "settings.range", f"central.port must be between 0 and 65535, got {self.port}", field="central.port"
            )

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{Path(self.folder) / 'central.db'}"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """[log]"""

    level: str = "info"
    """debug, info, warning or error."""
    json: bool = False
    """Log in JSON."""


@dataclass(frozen=True, slots=True)
class CentralSettings:
    """All settings of a central process."""

    central: CentralOptions = field(default_factory=CentralOptions)
    front: FrontOptions = field(default_factory=FrontOptions)
    accounts: AccountOptions = field(default_factory=AccountOptions)
    oidc: OidcOptions = field(default_factory=OidcOptions)
    ingest: IngestOptions = field(default_factory=IngestOptions)
    mirror: MirrorOptions = field(default_factory=MirrorOptions)
    intents: IntentOptions = field(default_factory=IntentOptions)
    events: PublishOptions = field(default_factory=PublishOptions)
    dispatch: DispatchOptions = field(default_factory=DispatchOptions)
    email: EmailOptions = field(default_factory=EmailOptions)
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)
    upkeep: UpkeepOptions = field(default_factory=UpkeepOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    watch: WatchOptions = field(default_factory=WatchOptions)
    outbound: OutboundOptions = field(default_factory=OutboundOptions)
    secrets: SecretsOptions = field(default_factory=SecretsOptions)
    log: LogOptions = field(default_factory=LogOptions)

    def __post_init__(self) -> None:
        if self.oidc.issuer and not self.front.public_url:
            raise ConfigError("settings.oidc", "oidc.issuer needs front.public_url", field="front.public_url")


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> CentralSettings:
    """The settings from this file (by default ./fieldpost.toml, if it exists) and the environment."""
    found = _read_file(file)
    sections = {section.name: section for section in fields(CentralSettings)}
    for name, value in _from_environment(os.environ if environ is None else environ).items():
        section, _, key = name.partition(".")
        if section in sections:
            table = found.setdefault(section, {})
            if isinstance(table, dict):
                table[key] = value
        else:
            raise ConfigError(
                "settings.unknown", f"{PREFIX}{section.upper()}__… does not name a section of the settings"
            )
    options: dict[str, Any] = {}
    for name, table in found.items():
        if name not in sections:
            raise ConfigError(
                "settings.unknown", f"[{name}] is not a section of the settings", hint=f"known: {', '.join(sections)}"
            )
        default = sections[name].default_factory
        assert default is not MISSING, "every section has a default"
        options[name] = _read_section(type(default()), name, table)
    return CentralSettings(**options)


def given(file: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[set[str], set[str]]:
    """The settings given in the file and in the environment, as `section.name`."""
    return set(in_file(file)), set(_from_environment(os.environ if environ is None else environ))


def in_file(file: Path | None = None) -> dict[str, Any]:
    """The values in the file, by `section.name`."""
    tables = {name: table for name, table in _read_file(file).items() if isinstance(table, dict)}
    return {f"{section}.{name}": value for section, table in tables.items() for name, value in table.items()}


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError("settings.file", f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file is None:
            return {}
        raise ConfigError("settings.file", f"settings file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("settings.file", f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("settings.file", f"{path} is not TOML: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, "_Text"]:
    found = {}
    for name, value in environ.items():
        if name.startswith(PREFIX) and "__" in name and name.removeprefix(PREFIX) not in _OTHERS:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            found[f"{section}.{key}"] = _Text(value)
    return found


class _Text(str):
    """A value from the environment, converted to a number or boolean where the setting needs one."""


def _read_section(kind: type[Any], section: str, table: object) -> Any:
    if not isinstance(table, dict):
        raise ConfigError("settings.type", f"[{section}] must be a section", field=section)
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                "settings.unknown",
                f"{section}.{key} is not a setting",
                hint=f"settings of [{section}]: {', '.join(known)}",
                field=f"{section}.{key}",
            )
        try:
            plain = str(value) if isinstance(value, _Text) else value
            values[key] = msgspec.convert(plain, hints[key], strict=not isinstance(value, _Text))
        except msgspec.ValidationError as error:
            raise ConfigError("settings.type", f"{section}.{key}: {error}", field=f"{section}.{key}") from None
    return kind(**values)
