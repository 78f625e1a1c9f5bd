"""Secrets of a list's targets: the checks before they are stored, and sealing. No action returns one."""

import os
from collections.abc import Mapping
from dataclasses import replace

from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, SecretUnreadable, owner_of
from fieldpost.core.delivery.adapter import Adapter, SecretTargets
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import NotificationList
from fieldpost.core.secret import Secret, check_secret


def check_target_secrets(
    wanted: NotificationList, adapters: Mapping[str, Adapter], given: Mapping[str, object]
) -> dict[str, Secret | None]:
    """The new secrets by target; None for one to clear. An empty text keeps the present one."""
    adapter: object = adapters.get(wanted.type)
    checked: dict[str, Secret | None] = {}
    for label, value in given.items():
        field = f"secrets.{label[:64]}"
        if not isinstance(adapter, SecretTargets):
            raise InvalidInput(
                "secret.unknown", f"{field}: targets of type {wanted.type!r} have no secret", field=field
            )
        if label not in wanted.targets:
            raise InvalidInput("secret.unknown", f"{field}: the list has no target {label[:64]!r}", field=field)
        if value is None:
            checked[label] = None
        elif value != "":
            try:
                checked[label] = adapter.check_target_secret(check_secret(value, field))
            except InvalidInput as error:
                message = error.message if error.message.startswith(field) else f"{field}: {error.message}"
                raise InvalidInput(error.code, message, hint=error.hint, field=field) from None
    return checked


def seal_secrets(
    keyring: Keyring, seen: NotificationList | None, wanted: NotificationList, given: Mapping[str, Secret | None]
) -> NotificationList:
    """The list with the secrets of `seen` that stay and the given ones, sealed; an equal one keeps its sealed text."""
    owner = owner_of(wanted)
    kept = {label: sealed for label, sealed in (seen.secrets if seen else {}).items() if label in wanted.targets}
    for label, secret in given.items():
        if secret is None:
            kept.pop(label, None)
        elif label not in kept or not _is_same(keyring, wanted, label, kept[label], secret):
            kept[label] = keyring.seal(secret, owner, label, os.urandom(NONCE_BYTES))
    return replace(wanted, secrets=kept)


def _is_same(keyring: Keyring, wanted: NotificationList, label: str, sealed: str, secret: Secret) -> bool:
    try:
        return keyring.open(sealed, owner_of(wanted), label) == secret
    except SecretUnreadable:
        return False
