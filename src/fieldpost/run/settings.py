"""Settings of central: read once at start, from a TOML file and the environment.

Each package has an Options dataclass beside the code that uses it, with a default, a unit in the name and a description
of each field. This module only nests them; `settings_file` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.oidc_options import OidcOptions
from fieldpost.central.adapters.email.options import EmailOptions
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.mirror import MirrorOptions
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import IngestOptions
from fieldpost.central.operate.intents import IntentOptions
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.central.secrets.key_files import SecretsOptions
from fieldpost.central.upkeep.options import AuditOptions, UpkeepOptions
from fieldpost.central.watch.watch import WatchOptions
from fieldpost.core.errors import ConfigError
from fieldpost.front.options import FrontOptions
from fieldpost.outbound.options import OutboundOptions
from fieldpost.run.settings_file import LogOptions, read_settings

RELAY_SECTIONS = frozenset(("relay",))
"""Sections that another process reads from the same file."""


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
    zgw: ZgwOptions = field(default_factory=ZgwOptions)
    upkeep: UpkeepOptions = field(default_factory=UpkeepOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    watch: WatchOptions = field(default_factory=WatchOptions)
    outbound: OutboundOptions = field(default_factory=OutboundOptions)
    secrets: SecretsOptions = field(default_factory=SecretsOptions)
    log: LogOptions = field(default_factory=LogOptions)

    def __post_init__(self) -> None:
        if self.oidc.issuer and not self.front.public_url:
            raise ConfigError("settings.oidc", "oidc.issuer needs front.public_url", field="front.public_url")
        if self.zgw.enabled and not self.front.public_url:
            raise ConfigError("settings.zgw", "zgw.enabled needs front.public_url", field="front.public_url")


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> CentralSettings:
    """The settings from this file (by default ./fieldpost.toml, if it exists) and the environment."""
    return read_settings(CentralSettings, file, environ, others=RELAY_SECTIONS)
