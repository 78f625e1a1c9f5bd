"""Description of webhook channels for people: settings as form fields, phases of an attempt, and the guide."""

from importlib.resources import files

from fieldpost.central.adapters.http import PROXY_PHASE
from fieldpost.core.delivery.adapter import AttemptPhase, SettingField
from fieldpost.core.delivery.quick_tries import QuickTries

_TRIES = QuickTries()

FIELDS = (
    SettingField(
        name="secret",
        doc="signs each request: whsec_ and the base64 of 24 to 64 bytes",
        is_required=True,
        is_never_sent=True,
    ),
    SettingField(
        name="auth",
        is_destination=True,
        doc="credentials besides the signature: a fixed header, basic (user name and password) or oauth2 (token)",
        kind="choice",
        choices=("none", "header", "basic", "oauth2"),
        default="none",
    ),
    SettingField(name="auth_header", doc="name of the header, for auth header", setting="auth", values=("header",)),
    SettingField(
        name="username", is_destination=True, doc="user name, for auth basic", setting="auth", values=("basic",)
    ),
    SettingField(
        name="auth_secret",
        doc="value of the header, password, or client secret",
        setting="auth",
        values=("header", "basic", "oauth2"),
    ),
    SettingField(
        name="token_url",
        is_destination=True,
        doc="URL of the token endpoint, for auth oauth2",
        setting="auth",
        values=("oauth2",),
    ),
    SettingField(name="client_id", doc="client id, for auth oauth2", setting="auth", values=("oauth2",)),
    SettingField(
        name="scope",
        doc="scope, for auth oauth2, if the token endpoint requires one",
        default="none",
        setting="auth",
        values=("oauth2",),
    ),
    SettingField(
        name="quick_tries",
        doc="how often a failed request is repeated within seconds, from 0 to 10",
        kind="whole",
        default=str(_TRIES.repeats),
        is_advanced=True,
    ),
    SettingField(
        name="quick_tries_base_s",
        doc="seconds before the first repeat",
        kind="number",
        default=f"{_TRIES.base_s:g}",
        is_advanced=True,
    ),
    SettingField(
        name="quick_tries_pattern",
        doc="how the waits between repeats grow",
        kind="choice",
        choices=("exponential", "linear"),
        default=_TRIES.pattern.value,
        is_advanced=True,
    ),
    SettingField(
        name="retry_codes",
        doc="statuses that are repeated within seconds besides 5xx, 408 and 429, such as 404 423",
        default="none",
        is_advanced=True,
    ),
    SettingField(
        name="give_up_codes",
        doc="statuses after which the notification is parked at once, such as 400 422",
        default="none",
        is_advanced=True,
    ),
    SettingField(
        name="former_secret",
        doc="signs too, for 24 hours after rotated_at",
        default="none",
        is_advanced=True,
        is_never_sent=True,
    ),
    SettingField(
        name="rotated_at",
        doc="when secret replaced former_secret, such as 2026-11-15T08:00:00Z",
        default="never",
        is_advanced=True,
    ),
)
_OF_CHANNEL = {field.name: field for field in FIELDS}
SUBSCRIPTION_FIELDS = (
    SettingField(name="url", doc="where requests are sent to, by POST; https", is_required=True),
    SettingField(
        name="format",
        doc="standard: type, timestamp and data; cloudevents: structured JSON 1.0; raw: the payload as published",
        kind="choice",
        choices=("standard", "cloudevents", "raw"),
        default="standard",
    ),
    *(
        _OF_CHANNEL[name]
        for name in ("auth", "auth_header", "username", "auth_secret", "token_url", "client_id", "scope")
    ),
    SettingField(name="secret", doc="signs each request: whsec_ and the base64 of 24 to 64 bytes; generated if empty"),
    SettingField(name="rate", doc="how many requests may start per period, such as 20/1m", default="none"),
    *(_OF_CHANNEL[name] for name in ("quick_tries", "quick_tries_base_s", "quick_tries_pattern")),
    *(_OF_CHANNEL[name] for name in ("retry_codes", "give_up_codes")),
)
"""The form fields of a subscription; its extra headers have a separate field."""
PHASES = (
    AttemptPhase(
        "token",
        "Fetch a token",
        "Check token_url, client_id and client secret with the receiver's administrator.",
        "auth",
        ("oauth2",),
    ),
    AttemptPhase(
        "queue", "Wait for a free connection", "Too many requests are in progress; see `[outbound] connections`."
    ),
    PROXY_PHASE,
    AttemptPhase("resolve", "Resolve the host name", "Check the host in the URL and this machine's name server."),
    AttemptPhase(
        "guard",
        "Check the address",
        "The host has a private or reserved address; an administrator can allow it with `[outbound] allow`.",
    ),
    AttemptPhase("connect", "Connect", "Check that the receiver runs and that a firewall lets the connection pass."),
    AttemptPhase("tls", "TLS handshake", "Check the receiver's certificate: its host name, issuer and end date."),
    AttemptPhase("send", "Send the request", "The receiver closed the connection while the request was being sent."),
    AttemptPhase("answer", "Wait for the answer", "Check the receiver's log; it must answer 2xx within 30 seconds."),
)
GUIDE = (files("fieldpost.central.adapters.webhook") / "guide.md").read_text("utf-8")
