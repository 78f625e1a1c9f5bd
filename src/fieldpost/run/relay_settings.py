"""Settings of the process `fieldpost relay`, which needs none of central's packages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.run.settings_file import LogOptions, read_settings

CENTRAL_SECTIONS = frozenset(
    (
        "central",
        "front",
        "accounts",
        "oidc",
        "ingest",
        "mirror",
        "intents",
        "events",
        "dispatch",
        "email",
        "webhooks",
        "zgw",
        "upkeep",
        "audit",
        "watch",
        "outbound",
        "secrets",
    )
)
"""Sections that `fieldpost central` reads from the same file; named here because its classes need its packages."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """All settings of a relay process."""

    relay: RelayOptions = field(default_factory=RelayOptions)
    log: LogOptions = field(default_factory=LogOptions)


def load_relay(file: Path | None = None, environ: Mapping[str, str] | None = None) -> RelaySettings:
    """The settings from this file (by default ./fieldpost.toml, if it exists) and the environment."""
    return read_settings(RelaySettings, file, environ, others=CENTRAL_SECTIONS)
