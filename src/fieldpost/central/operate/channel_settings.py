"""Settings and secrets of a channel: what its type takes, and the checks before they are stored."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, owner_of
from fieldpost.core.delivery.adapter import Adapter, AttemptPhase, Described, HostChecker, SettingField
from fieldpost.core.delivery.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel
from fieldpost.core.secret import Secret, check_secret

RETRY_FIELDS = (
    SettingField(
        name="max_retries",
        doc="number of attempts without progress before a notification is parked",
        kind="whole",
        default=str(ATTEMPTS_MAX_DEFAULT),
    ),
    SettingField(
        name="retry_delay_s", doc="seconds between attempts", kind="number", default=f"{RETRY_DELAY_S_DEFAULT:g}"
    ),
)
"""Fields that every channel has, whatever its type."""


@dataclass(frozen=True, slots=True)
class ChannelType:
    """The settings that channels of a type take. An adapter without a description shows only its secrets."""

    type: str
    secrets: frozenset[str]
    fields: Sequence[SettingField] = ()
    phases: Sequence[AttemptPhase] = ()
    guide: str = ""

    @property
    def plain_fields(self) -> list[SettingField]:
        return [field for field in self.fields if field.name not in self.secrets]


def type_of(adapter: Adapter) -> ChannelType:
    """The description of this adapter."""
    described: object = adapter
    if not isinstance(described, Described):
        return ChannelType(adapter.type, adapter.secrets)
    return ChannelType(adapter.type, adapter.secrets, described.fields, described.phases, described.guide)


async def check_hosts(adapter: object, settings: Mapping[str, object]) -> None:
    """Let the adapter look up the hosts in these settings."""
    if not isinstance(adapter, HostChecker):
        return
    try:
        await adapter.check_hosts(settings)
    except InvalidInput as error:
        field = f"settings.{error.field}"
        raise InvalidInput(error.code, f"{field}: {error.message}", hint=error.hint, field=field) from None


def apply_changes(
    keyring: Keyring, adapter: Adapter, base: Channel, settings: Mapping[str, object], secrets: Mapping[str, object]
) -> Channel:
    """The channel with these settings and secrets over its present ones, checked together, the new secrets sealed."""
    _check_apart(adapter, settings, secrets)
    new = {n: check_secret(v, f"secrets.{n}") for n, v in secrets.items() if v is not None and v != ""}
    kept = {n: sealed for n, sealed in base.secrets.items() if n not in new and secrets.get(n, "") is not None}
    merged: dict[str, object] = {n: v for n, v in {**base.settings, **settings}.items() if v is not None}
    # The check needs only the presence of a kept secret, which may be unreadable.
    merged |= dict.fromkeys(kept, _KEPT) | new
    checked = {n: v for n, v in _check_settings(adapter, merged).items() if n not in adapter.secrets}
    sealed = {n: keyring.seal(s, owner_of(base), n, os.urandom(NONCE_BYTES)) for n, s in new.items()}
    return replace(base, settings=checked, secrets=kept | sealed)


def check_destination(adapter: Adapter, before: Channel, after: Channel) -> None:
    """Refuse to send a stored secret to a new place: InvalidInput unless it was given again with the change.

    An adapter that does not describe its settings may send secrets anywhere, so all its settings count.
    """
    kept = sorted(name for name, sealed in after.secrets.items() if before.secrets.get(name) == sealed)
    described = type_of(adapter).fields
    names = {field.name for field in described if field.is_destination} if described else {*before.settings}
    moved = sorted(name for name in names if before.settings.get(name) != after.settings.get(name))
    if kept and moved:
        raise InvalidInput(
            "settings.secret_again",
            f"{kept[0]} must be given again, because {', '.join(moved)} changed: it would be sent to another place",
            hint=f"give it with the change; on the command line: --secret {kept[0]}",
            field=f"secrets.{kept[0]}",
        )


def setting_changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Old and new values of the plain settings that differ, for the audit log."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return {name: {"old": before.get(name), "new": after.get(name)} for name in names}


_KEPT = Secret("kept as it is")


def _check_apart(adapter: Adapter, settings: Mapping[str, object], secrets: Mapping[str, object]) -> None:
    """Refuse a secret among the settings, where it could be shown or logged, and a setting among the secrets."""
    for name in settings:
        if name in adapter.secrets:
            raise InvalidInput(
                "settings.is_secret",
                f"{name} is a secret, not a plain setting",
                hint=f"put it under secrets; on the command line: --secret {name}",
                field=f"settings.{name}",
            )
    for name in secrets:
        if name not in adapter.secrets:
            known = ", ".join(sorted(adapter.secrets)) or "none"
            raise InvalidInput(
                "settings.no_secret",
                f"a channel of type {adapter.type!r} has no secret {name[:64]!r}; its secrets: {known}",
                field=f"secrets.{name[:64]}",
            )


def _check_settings(adapter: Adapter, settings: Mapping[str, object]) -> dict[str, object]:
    try:
        return adapter.check_settings(settings)
    except InvalidInput as error:
        group = "secrets" if error.field in adapter.secrets else "settings"
        field = f"{group}.{error.field}" if error.field else group
        raise InvalidInput(error.code, error.message, hint=error.hint, field=field) from None
