"""Settings and secrets of a subscription: merged with its present ones, checked together, new secrets sealed."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from fieldpost.central.adapters.webhook.settings import SECRETS, check_subscription_settings
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, owner_of
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.signature import KEY_BYTES_DEFAULT, check_signing_secret, make_signing_secret
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.times import to_text

GIVEN_SECRETS = ("secret", "auth_secret")
"""The secrets that a user may set; a rotation sets the former one."""
_KEPT_SIGNING = make_signing_secret(bytes(KEY_BYTES_DEFAULT))
_KEPT = Secret("kept as it is")


def new_signing_secret() -> Secret:
    return make_signing_secret(os.urandom(KEY_BYTES_DEFAULT))


def apply_settings(
    keyring: Keyring,
    base: Subscription,
    settings: Mapping[str, object],
    secrets: Mapping[str, object],
    *,
    is_plain_allowed: bool,
) -> Subscription:
    """The subscription with these settings and secrets over its present ones.

    None resets a setting to its default and clears a secret; an empty text keeps the secret. Raises InvalidInput.
    """
    for name in settings:
        if name in SECRETS:
            raise InvalidInput(
                "settings.is_secret",
                f"{name} is a secret, not a plain setting",
                hint="put it under secrets",
                field=name,
            )
        if name == "rotated_at":
            raise InvalidInput("settings.unknown", "rotated_at is set by a rotation", field=name)
    for name in secrets:
        if name not in GIVEN_SECRETS:
            raise InvalidInput(
                "settings.no_secret",
                f"a subscription has no secret {name[:64]!r}; its secrets: {', '.join(GIVEN_SECRETS)}",
                field=f"secrets.{name[:64]}",
            )
    new = {name: _check(name, value) for name, value in secrets.items() if value is not None and value != ""}
    kept = {n: sealed for n, sealed in base.secrets.items() if n not in new and secrets.get(n, "") is not None}
    merged = {n: v for n, v in {**base.settings, **settings}.items() if v is not None}
    # The check needs only the presence of a kept secret, which may be unreadable.
    merged |= {n: _KEPT if n == "auth_secret" else _KEPT_SIGNING for n in kept} | new
    checked = check_subscription_settings(merged, is_plain_allowed=is_plain_allowed)
    plain = {n: v for n, v in checked.items() if n not in SECRETS}
    return replace(base, settings=plain, secrets=kept | _seal(keyring, base, new))


def rotate_secret(keyring: Keyring, base: Subscription, secret: Secret, now: datetime) -> Subscription:
    """The subscription with a new signing secret; the present one signs too for 24 hours. Raises SecretUnreadable."""
    former = keyring.open(base.secrets.get("secret"), owner_of(base), "secret")
    sealed = _seal(keyring, base, {"secret": secret, "former_secret": former})
    settings = {**base.settings, "rotated_at": to_text(now)}
    return replace(base, settings=settings, secrets={**base.secrets, **sealed})


def _check(name: str, value: object) -> Secret:
    field = f"secrets.{name}"
    return check_signing_secret(value, field) if name == "secret" else check_secret(value, field)


def _seal(keyring: Keyring, owner: Subscription, secrets: Mapping[str, Secret]) -> dict[str, str]:
    return {n: keyring.seal(s, owner_of(owner), n, os.urandom(NONCE_BYTES)) for n, s in secrets.items()}
