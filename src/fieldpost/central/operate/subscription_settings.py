"""Settings and secrets of a subscription: merged with its present ones, checked together, new secrets sealed."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from fieldpost.central.adapters.webhook.settings import SECRETS, check_subscription_settings
from fieldpost.central.operate.channel_settings import kept_secrets
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, owner_of
from fieldpost.core.delivery.destination import check_destination, origin_of
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.filter import ZGW
from fieldpost.core.events.signature import KEY_BYTES_DEFAULT, check_signing_secret, make_signing_secret
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.times import to_text
from fieldpost.core.zgw.token import jwt_expiry

GIVEN_SECRETS = ("secret", "auth_secret")
"""The secrets that a user may set; a rotation sets the former one."""
_KEPT_SIGNING = make_signing_secret(bytes(KEY_BYTES_DEFAULT))
_KEPT = Secret("kept as it is")
_OURS = {"rotated_at": "by a rotation", "auth_expires_at": "by the JWT in the auth secret"}
"""Settings that follow from actions."""


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
        if name in _OURS:
            raise InvalidInput("settings.unknown", f"{name} is set {_OURS[name]}", field=name)
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
    if "auth_secret" not in kept or merged.get("auth") != "header":
        merged.pop("auth_expires_at", None)
    merged |= {n: _KEPT if n == "auth_secret" else _KEPT_SIGNING for n in kept} | new
    checked = check_subscription_settings(merged, is_plain_allowed=is_plain_allowed)
    plain = {n: v for n, v in checked.items() if n not in SECRETS} | _expiry(checked, new.get("auth_secret"))
    return replace(base, settings=plain, secrets=kept | _seal(keyring, base, new))


def _expiry(checked: Mapping[str, object], auth: Secret | None) -> dict[str, object]:
    """The setting `auth_expires_at` for a new auth secret that is sent as a header and is a JWT."""
    expiry = jwt_expiry(auth.reveal()) if auth is not None and checked["auth"] == "header" else None
    return {} if expiry is None else {"auth_expires_at": to_text(expiry)}


def with_abonnement_id(subscription: Subscription) -> Subscription:
    """A subscription whose entries all match by the rule `zgw` is an abonnement; its id there is random."""
    is_abonnement = all(entry.rule == ZGW for entry in subscription.filter)
    if is_abonnement == (subscription.abonnement_id is not None):
        return subscription
    return replace(subscription, abonnement_id=str(uuid4()) if is_abonnement else None)


def check_receiver_destination(before: Subscription, after: Subscription) -> None:
    """Refuse to send the stored auth secret to another host: InvalidInput unless it was given again with the change.

    The kind of authentication counts too: it decides whether the secret goes to the receiver or to the token endpoint.
    """
    check_destination(_places(before), _places(after), kept_secrets(before, after) & {"auth_secret"})


def _places(subscription: Subscription) -> dict[str, object]:
    settings = subscription.settings
    urls = {name: origin_of(settings.get(name)) for name in ("url", "token_url")}
    return {**urls, "auth": settings.get("auth")}


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
