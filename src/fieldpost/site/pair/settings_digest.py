"""Compares the settings of the two nodes: definitions, secret files, versions and clocks, by digests.

A digest is keyed with the incarnation that only the two nodes share, so that it says nothing about a secret to anybody
else who sees it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec

import fieldpost
from fieldpost.core.times import from_text
from fieldpost.link.pair_messages import PairHello
from fieldpost.site.config.folder import Folder

CLOCK_S = 5.0
"""The difference between the clocks beyond which it is reported."""


def settings_digests(folder: Folder, key: str) -> dict[str, str]:
    """The digest of each definition and secret file, by name."""
    found: dict[str, str] = {}
    for section, definitions in (("external", folder.externals), ("database", folder.databases)):
        for name, definition in definitions.items():
            cells = {name: _plain(value) for name, value in asdict(definition).items() if name != "folder"}
            found[f"{section}.{name}"] = _digest(key, msgspec.json.encode(cells, order="sorted"))
    for name in sorted(_secret_files(folder)):
        try:
            found[f"secret {name}"] = _digest(key, (folder.path / name).read_bytes())
        except OSError:
            found[f"secret {name}"] = "missing"
    return found


def _secret_files(folder: Folder) -> set[str]:
    names = {name for external in folder.externals.values() for name in external.secret_headers.values()}
    return names | {one.password_file for one in folder.databases.values() if one.password_file}


def differences(own: Mapping[str, str], hello: PairHello, received_at: datetime) -> tuple[str, ...]:
    """The names in which the nodes differ, by the greeting of the other node and the time at which it arrived."""
    found = [name for name in sorted({*own, *hello.digests}) if own.get(name) != hello.digests.get(name)]
    if hello.version != fieldpost.__version__:
        found.append("version")
    sent_at = from_text(hello.sent_at)
    if sent_at is not None and abs((sent_at - received_at).total_seconds()) > CLOCK_S:
        found.append("clock")
    return tuple(found)


def _digest(key: str, content: bytes) -> str:
    return hmac.new(key.encode(), content, "sha256").hexdigest()[:32]


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
