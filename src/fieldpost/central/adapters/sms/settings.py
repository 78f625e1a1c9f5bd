"""Settings of channels of type sms: those of all dialects, and those of each."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from fieldpost.central.adapters.provider import check_names
from fieldpost.central.adapters.sms.gateway import check_answers, check_template
from fieldpost.core.errors import InvalidInput, parse_choice
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.sms.phone_number import NumberFormat
from fieldpost.core.sms.segments import SEGMENTS_MAX_DEFAULT, check_segments_max
from fieldpost.outbound.url import check_url

TWILIO_URL = "https://api.twilio.com"
TEXT_MAX = 512
SECRETS = frozenset({"password"})
_LINE = re.compile(r"[\x20-\x7e]+", re.ASCII)


class SmsDialect(StrEnum):
    """The API of a gateway."""

    KANNEL = "kannel"
    TWILIO = "twilio"
    HTTP = "http"
    """Any API of one request per message."""


class PlainHttp(StrEnum):
    """Whether passwords may travel unencrypted."""

    FORBID = "forbid"
    ALLOW = "allow"


class GatewayMethod(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"


NAMES: Mapping[SmsDialect, tuple[str, ...]] = {
    SmsDialect.KANNEL: ("url", "username", "password", "sender", "plain_http"),
    SmsDialect.TWILIO: ("url", "username", "password", "sender", "plain_http"),
    SmsDialect.HTTP: (
        "url",
        "username",
        "password",
        "sender",
        "plain_http",
        "method",
        "body",
        "content_type",
        "number_format",
        "answers",
    ),
}
REQUIRED: Mapping[SmsDialect, tuple[str, ...]] = {
    SmsDialect.KANNEL: ("url", "username", "password"),
    SmsDialect.TWILIO: ("username", "password", "sender"),
    SmsDialect.HTTP: ("url",),
}
ALL_NAMES = ("dialect", "segments_max", *NAMES[SmsDialect.HTTP])


def check_sms_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with defaults filled in, or InvalidInput naming the field and the rule."""
    check_names(settings, ALL_NAMES, "sms")
    given = {name: value for name, value in settings.items() if value is not None}
    if "dialect" not in given:
        raise InvalidInput("settings.missing", "dialect is required", field="dialect")
    dialect = _choice(SmsDialect, given["dialect"], "dialect")
    full: dict[str, object] = {
        "segments_max": SEGMENTS_MAX_DEFAULT,
        "plain_http": PlainHttp.FORBID.value,
        **({"url": TWILIO_URL} if dialect == SmsDialect.TWILIO else {}),
        **(_HTTP_DEFAULTS if dialect == SmsDialect.HTTP else {}),
        **given,
        "dialect": dialect,
    }
    names = NAMES[SmsDialect(dialect)]
    for name in REQUIRED[SmsDialect(dialect)]:
        if name not in full:
            raise InvalidInput("settings.missing", f"{name} is required with dialect {dialect}", field=name)
    for name in full:
        if name not in (*names, "dialect", "segments_max"):
            raise InvalidInput("settings.unknown", f"{name} is not a setting of dialect {dialect}", field=name)
    checked = {name: _CHECKS[name](value, name) for name, value in full.items() if name != "url"}
    if "url" in full:
        checked["url"] = _check_url(full["url"], str(checked["plain_http"]), is_template=dialect == SmsDialect.HTTP)
    if dialect == SmsDialect.TWILIO and not re.fullmatch(r"AC[0-9a-f]{32}", str(checked["username"])):
        raise InvalidInput(
            "settings.invalid", "username must be an account SID: AC and 32 hexadecimal digits", field="username"
        )
    return {name: checked[name] for name in ALL_NAMES if name in checked}


def _check_url(value: object, plain_http: str, *, is_template: bool) -> str:
    if is_template:
        check_template(value, "url")
        sample = re.sub(r"\{[a-z]+\}", "0", value) if isinstance(value, str) else value
        check_url(sample, "admin", is_plain_allowed=plain_http == PlainHttp.ALLOW)
        return str(value)
    return str(check_url(value, "admin", is_plain_allowed=plain_http == PlainHttp.ALLOW)).rstrip("/")


def _choice(kind: type[StrEnum], value: object, name: str) -> str:
    return parse_choice(kind, value if isinstance(value, str) else repr(value), "settings.choice", name).value


def _check_line(value: object, name: str) -> str:
    if type(value) is not str or len(value) > TEXT_MAX or not _LINE.fullmatch(value):
        raise InvalidInput("settings.invalid", f"{name} must be 1 to {TEXT_MAX} printable ASCII characters", field=name)
    return value


def _check_password(value: object, name: str) -> Secret:
    secret = value if isinstance(value, Secret) else check_secret(value, name)
    if not _LINE.fullmatch(secret.reveal()):
        raise InvalidInput("settings.invalid", f"{name} must be printable ASCII characters", field=name)
    return secret


_CHECKS: Mapping[str, Callable[[object, str], object]] = {
    "dialect": lambda value, name: _choice(SmsDialect, value, name),
    "segments_max": check_segments_max,
    "username": _check_line,
    "password": _check_password,
    "sender": _check_line,
    "plain_http": lambda value, name: _choice(PlainHttp, value, name),
    "method": lambda value, name: _choice(GatewayMethod, value, name),
    "body": check_template,
    "content_type": _check_line,
    "number_format": lambda value, name: _choice(NumberFormat, value, name),
    "answers": check_answers,
}
_HTTP_DEFAULTS: Mapping[str, object] = {
    "method": GatewayMethod.POST.value,
    "body": "",
    "content_type": "application/x-www-form-urlencoded",
    "number_format": NumberFormat.PLUS.value,
    "answers": "",
}
