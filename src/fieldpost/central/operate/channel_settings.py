"""Settings and secrets of a channel: what its type takes, and the checks before they are stored."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, SecretUnreadable, owner_of
from fieldpost.core.delivery.adapter import Adapter, AttemptPhase, Described, HostChecker, SecretTargets, SettingField
from fieldpost.core.delivery.destination import check_destination, destination_of
from fieldpost.core.delivery.receipt import RECEIPT_WAIT_S_DEFAULT, ReceiptMissing, Receipts
from fieldpost.core.delivery.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.lists import Channel
from fieldpost.core.secret import Secret, check_secret

POLICY_FIELDS = (
    SettingField(
        name="max_retries",
        doc="number of attempts without progress before a notification is parked",
        kind="whole",
        default=str(ATTEMPTS_MAX_DEFAULT),
    ),
    SettingField(
        name="retry_delay_s", doc="seconds between attempts", kind="number", default=f"{RETRY_DELAY_S_DEFAULT:g}"
    ),
    SettingField(
        name="rate",
        doc="how many deliveries of all its lists may start per period, such as 20/1m",
        default="of the type",
    ),
)
"""Fields that every channel has, whatever its type."""
RECEIPT_FIELDS = (
    SettingField(
        name="receipt_wait_s",
        doc="seconds to wait for the receipt of a target that its provider has accepted, as for SMS",
        kind="number",
        default=f"{RECEIPT_WAIT_S_DEFAULT:g}",
    ),
    SettingField(
        name="receipt_missing",
        doc="without a receipt the target counts as delivered, is tried again (retry) or parks (park)",
        kind="choice",
        choices=tuple(ReceiptMissing),
        default=ReceiptMissing.DELIVERED.value,
    ),
)
"""Fields of channels whose provider reports on accepted targets."""


@dataclass(frozen=True, slots=True)
class ChannelType:
    """The settings that channels of a type take. An adapter without a description shows only its secrets."""

    type: str
    secrets: frozenset[str]
    is_described: bool = False
    """Whether its fields are all its settings; else they are given as lines of text."""
    fields: Sequence[SettingField] = ()
    phases: Sequence[AttemptPhase] = ()
    guide: str = ""
    has_target_secrets: bool = False
    """Whether the targets of its lists are labels with a secret."""
    has_receipts: bool = False
    """Whether its provider reports on accepted targets."""

    @property
    def policy_fields(self) -> tuple[SettingField, ...]:
        """The fields of a channel besides its settings."""
        return (*POLICY_FIELDS, *RECEIPT_FIELDS) if self.has_receipts else POLICY_FIELDS

    @property
    def plain_fields(self) -> list[SettingField]:
        return [field for field in self.fields if field.name not in self.secrets]


def type_of(adapter: Adapter) -> ChannelType:
    """The description of this adapter."""
    described: object = adapter
    bare = ChannelType(
        adapter.type,
        adapter.secrets,
        has_target_secrets=isinstance(described, SecretTargets),
        has_receipts=isinstance(described, Receipts),
    )
    if not isinstance(described, Described):
        return bare
    return replace(bare, is_described=True, fields=described.fields, phases=described.phases, guide=described.guide)


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
    merged |= {n: _kept_secret(keyring, base, n, sealed) for n, sealed in kept.items()} | new
    checked = {n: v for n, v in _check_settings(adapter, merged).items() if n not in adapter.secrets}
    sealed = {n: keyring.seal(s, owner_of(base), n, os.urandom(NONCE_BYTES)) for n, s in new.items()}
    return replace(base, settings=checked, secrets=kept | sealed)


def check_channel_destination(adapter: Adapter, before: Channel, after: Channel) -> None:
    """Refuse to send a stored secret to a new host: InvalidInput unless it was given again with the change."""
    never_sent = {field.name for field in type_of(adapter).fields if field.is_never_sent}
    then, now = destination_of(adapter, before), destination_of(adapter, after)
    check_destination(then, now, kept_secrets(before, after) - never_sent)


def kept_secrets(before: Channel | Subscription, after: Channel | Subscription) -> set[str]:
    """The names of the stored secrets that a change leaves as they are."""
    return {name for name, sealed in after.secrets.items() if before.secrets.get(name) == sealed}


def setting_changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Old and new values of the plain settings that differ, for the audit log."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return {name: {"old": before.get(name), "new": after.get(name)} for name in names}


def _kept_secret(keyring: Keyring, base: Channel, name: str, sealed: str) -> Secret:
    """A kept secret for the check of all settings together. Of one that cannot be read, only the presence counts."""
    try:
        return keyring.open(sealed, owner_of(base), name)
    except SecretUnreadable:
        return _KEPT


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
