"""Settings of a webhook: signature, authentication, quick tries, and the codes that change how a failure is treated.

A channel of type webhook has these settings; each target of its lists is a URL. A subscription has them too, and a URL,
a format, extra headers and a rate of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fieldpost.central.adapters.webhook.setting_checks import (
    WebhookAuth,
    check_admin_url,
    check_auth,
    check_auth_secret,
    check_base_s,
    check_codes,
    check_format,
    check_header_name,
    check_headers,
    check_moment,
    check_pattern,
    check_rate,
    check_repeats,
    check_signing,
    check_strict_url,
    check_text,
    check_username,
    codes_of,
)
from fieldpost.core.delivery.quick_tries import QuickTries, TryPattern
from fieldpost.core.delivery.rate import Rate, parse_rate
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.body import WebhookFormat
from fieldpost.core.events.signature import ROTATION_OVERLAP
from fieldpost.core.secret import Secret
from fieldpost.core.times import from_text
from fieldpost.outbound.tokens import Credential
from fieldpost.outbound.url import check_url

SECRETS = frozenset({"secret", "former_secret", "auth_secret"})
_NEEDED: Mapping[WebhookAuth, tuple[str, ...]] = {
    WebhookAuth.NONE: (),
    WebhookAuth.HEADER: ("auth_header", "auth_secret"),
    WebhookAuth.BASIC: ("username", "auth_secret"),
    WebhookAuth.OAUTH2: ("token_url", "client_id", "auth_secret"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The settings of a channel of type webhook, and those that a subscription shares with it."""

    secret: Secret
    """Signs each request."""
    former_secret: Secret | None = None
    """Signs too, for 24 hours after a rotation."""
    rotated_at: datetime | None = None
    auth: WebhookAuth = WebhookAuth.NONE
    auth_header: str | None = None
    username: str | None = None
    auth_secret: Secret | None = None
    """The value of the header, the password, or the client secret."""
    token_url: str | None = None
    client_id: str | None = None
    scope: str = ""
    tries: QuickTries = field(default_factory=QuickTries)
    retry_codes: frozenset[int] = frozenset()
    """Statuses that are repeated quickly, besides 5xx, 408 and 429."""
    give_up_codes: frozenset[int] = frozenset()
    """Statuses that park the notification at once."""
    url: str | None = None
    """None for a channel: there the target is the URL."""
    format: WebhookFormat = WebhookFormat.STANDARD
    headers: Mapping[str, str] = field(default_factory=dict)
    rate: Rate | None = None

    def signing_secrets(self, now: datetime) -> list[Secret]:
        """The secrets that sign a request now: two for 24 hours after a rotation."""
        if self.former_secret is None or self.rotated_at is None or now - self.rotated_at >= ROTATION_OVERLAP:
            return [self.secret]
        return [self.secret, self.former_secret]

    @property
    def credential(self) -> Credential | None:
        """The OAuth2 client credentials, with auth oauth2."""
        if self.auth is not WebhookAuth.OAUTH2:
            return None
        return Credential(self.token_url or "", self.client_id or "", self.auth_secret or Secret(""), self.scope)


def check_channel_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a channel with defaults filled in, or InvalidInput naming the field and the rule."""
    return _checked(settings, _CHANNEL)


def check_subscription_settings(settings: Mapping[str, object], *, is_plain_allowed: bool) -> dict[str, object]:
    """The settings of a subscription with defaults filled in, or InvalidInput naming the field and the rule."""
    full = _checked(settings, _SUBSCRIPTION)
    for name in ("url", "token_url"):
        if name in full:
            check_receiver_url(full[name], name, is_plain_allowed=is_plain_allowed)
    return full


def check_receiver_url(value: object, field: str = "url", *, is_plain_allowed: bool) -> str:
    """The URL of a receiver as it will be requested, or InvalidInput."""
    url = check_url(value, "strict", field)
    if url.scheme != "https" and not is_plain_allowed:
        raise InvalidInput(
            "url.plain",
            f"{field} must begin with https://",
            hint="an administrator can allow plain http with `[webhooks] allow_plain`",
            field=field,
        )
    return str(url)


def read_settings(stored: Mapping[str, object]) -> WebhookSettings:
    """Read checked settings for an attempt; raises InvalidInput. Unknown settings are ignored."""
    known = {name: value for name, value in stored.items() if name in _SUBSCRIPTION}
    full = _checked(known, _SUBSCRIPTION if "url" in known else _CHANNEL)
    rate, rotated_at = full.get("rate"), full.get("rotated_at")
    plain: dict[str, Any] = {
        name: full[name]
        for name in (
            "secret",
            "former_secret",
            "auth_header",
            "username",
            "auth_secret",
            "token_url",
            "client_id",
            "scope",
            "url",
            "headers",
        )
        if name in full
    }
    return WebhookSettings(
        **plain,
        rotated_at=from_text(str(rotated_at)) if rotated_at is not None else None,
        auth=WebhookAuth(str(full["auth"])),
        tries=QuickTries(
            int(str(full["quick_tries"])),
            float(str(full["quick_tries_base_s"])),
            TryPattern(str(full["quick_tries_pattern"])),
        ),
        retry_codes=codes_of(full["retry_codes"]),
        give_up_codes=codes_of(full["give_up_codes"]),
        format=WebhookFormat(str(full.get("format", WebhookFormat.STANDARD.value))),
        rate=parse_rate(rate) if rate is not None else None,
    )


SettingCheck = Callable[[object, str], object]


def _checked(settings: Mapping[str, object], checks: Mapping[str, SettingCheck]) -> dict[str, object]:
    for name in settings:
        if name not in checks:
            shown = repr(name)[:64]
            raise InvalidInput(
                "settings.unknown",
                f"unknown setting {shown}; a webhook has: {', '.join(checks)}",
                field=shown.strip("'"),
            )
    full = dict(_DEFAULTS) | {name: value for name, value in settings.items() if value is not None}
    checked = {name: check(full[name], name) for name, check in checks.items() if name in full}
    needed = ("secret", *(("url",) if "url" in checks else ()), *_NEEDED[WebhookAuth(str(checked["auth"]))])
    for name in needed:
        if name not in checked:
            why = "" if name in ("secret", "url") else f" with auth {checked['auth']}"
            raise InvalidInput("settings.missing", f"{name} is required{why}", field=name)
    both = codes_of(checked["retry_codes"]) & codes_of(checked["give_up_codes"])
    if both:
        raise InvalidInput(
            "settings.codes",
            f"give_up_codes must not contain {min(both)}, which retry_codes contains",
            field="give_up_codes",
        )
    return checked


_CHANNEL: Mapping[str, SettingCheck] = {
    "secret": check_signing,
    "former_secret": check_signing,
    "rotated_at": check_moment,
    "auth": check_auth,
    "auth_header": check_header_name,
    "username": check_username,
    "auth_secret": check_auth_secret,
    "token_url": check_admin_url,
    "client_id": check_text,
    "scope": check_text,
    "quick_tries": check_repeats,
    "quick_tries_base_s": check_base_s,
    "quick_tries_pattern": check_pattern,
    "retry_codes": check_codes,
    "give_up_codes": check_codes,
}
_SUBSCRIPTION: Mapping[str, SettingCheck] = {
    **_CHANNEL,
    "url": check_strict_url,
    "token_url": check_strict_url,
    "auth_expires_at": check_moment,
    "format": check_format,
    "headers": check_headers,
    "rate": check_rate,
}
_TRIES = QuickTries()
_DEFAULTS: Mapping[str, object] = {
    "auth": WebhookAuth.NONE.value,
    "quick_tries": _TRIES.repeats,
    "quick_tries_base_s": _TRIES.base_s,
    "quick_tries_pattern": _TRIES.pattern.value,
    "retry_codes": "",
    "give_up_codes": "",
    "format": WebhookFormat.STANDARD.value,
    "headers": {},
}
