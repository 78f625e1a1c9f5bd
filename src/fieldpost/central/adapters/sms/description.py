"""The form fields of channels of type sms."""

from fieldpost.central.adapters.sms.settings import TWILIO_URL, GatewayMethod, PlainHttp, SmsDialect
from fieldpost.core.delivery.adapter import SettingField
from fieldpost.core.sms.phone_number import NumberFormat
from fieldpost.core.sms.segments import SEGMENTS_MAX_DEFAULT, SEGMENTS_MAX_LIMIT

_HTTP = {"setting": "dialect", "values": (SmsDialect.HTTP.value,)}

FIELDS = (
    SettingField(
        name="dialect",
        doc="the gateway: kannel (modems, SMPP), twilio (and compatible services) or http (any other)",
        kind="choice",
        choices=tuple(SmsDialect),
        is_required=True,
        is_destination=True,
    ),
    SettingField(
        name="url",
        doc="Kannel's sendsms URL; Twilio's base URL; for http the request's URL with placeholders such as {number}",
        default=f"{TWILIO_URL} for twilio",
        is_destination=True,
    ),
    SettingField(name="username", doc="user name; the account SID for twilio", default="none", is_destination=True),
    SettingField(name="password", doc="password; the auth token for twilio", default="none"),
    SettingField(
        name="sender", doc="sender: a number, a name, or the SID of a messaging service", default="the gateway's"
    ),
    SettingField(
        name="method",
        doc="method of the request",
        kind="choice",
        choices=tuple(GatewayMethod),
        default=GatewayMethod.POST.value,
        **_HTTP,  # type: ignore[arg-type]
    ),
    SettingField(
        name="body",
        doc="body of the request, with {number}, {text}, {sender}, {id}, {username} and {password}",
        default="empty",
        **_HTTP,  # type: ignore[arg-type]
    ),
    SettingField(
        name="content_type",
        doc="type of the body, by which placeholders are encoded: form, JSON or XML",
        default="application/x-www-form-urlencoded",
        **_HTTP,  # type: ignore[arg-type]
    ),
    SettingField(
        name="number_format",
        doc="how the gateway wants a number: +49…, 0049… or bare 49…",
        kind="choice",
        choices=tuple(NumberFormat),
        default=NumberFormat.PLUS.value,
        **_HTTP,  # type: ignore[arg-type]
    ),
    SettingField(
        name="answers",
        doc="meaning of the gateway's answers: OK=delivered, ERROR=retry, WRONG_NUMBER=failed; also held and pause",
        default="by the HTTP status",
        **_HTTP,  # type: ignore[arg-type]
    ),
    SettingField(
        name="segments_max",
        doc=f"how many segments a text may take, from 1 to {SEGMENTS_MAX_LIMIT}; longer texts are truncated",
        kind="whole",
        default=str(SEGMENTS_MAX_DEFAULT),
        is_advanced=True,
    ),
    SettingField(
        name="plain_http",
        doc="whether url may begin with http:// within the plant's network; anybody on that network can read it",
        kind="choice",
        choices=tuple(PlainHttp),
        default=PlainHttp.FORBID.value,
        is_advanced=True,
    ),
)
