"""Description of email channels for people: settings as form fields, phases of an attempt, and the guide."""

from importlib.resources import files

from fieldpost.central.adapters.email.settings import (
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    CONNECTIONS_DEFAULT,
    DATA_TIMEOUT_S,
    PORTS,
)
from fieldpost.core.adapter import AttemptPhase, SettingField
from fieldpost.core.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT

FIELDS = (
    SettingField(
        name="host", doc="host name or IP address of the mail server, without smtp:// and port", is_required=True
    ),
    SettingField(
        name="tls",
        doc="encryption of the connection; use none only for this machine or a trusted network",
        kind="choice",
        choices=("starttls", "implicit", "none"),
        is_required=True,
    ),
    SettingField(
        name="port",
        doc="port of the mail server",
        kind="whole",
        default=", ".join(f"{port} with {tls}" for tls, port in PORTS.items()),
    ),
    SettingField(name="from_address", doc="sender of every mail; bounces go to this address", is_required=True),
    SettingField(
        name="auth",
        doc="authentication: none, basic (user name and password) or oauth2 (token)",
        kind="choice",
        choices=("none", "basic", "oauth2"),
        default="none",
    ),
    SettingField(name="username", doc="user name, for basic and oauth2"),
    SettingField(name="password", doc="password, for basic"),
    SettingField(name="oauth_token_url", doc="URL of the token endpoint, for oauth2", is_advanced=True),
    SettingField(name="oauth_client_id", doc="client id, for oauth2", is_advanced=True),
    SettingField(name="oauth_client_secret", doc="client secret, for oauth2", is_advanced=True),
    SettingField(name="oauth_scope", doc="scope, for oauth2, if the token endpoint requires one", is_advanced=True),
    SettingField(
        name="max_retries",
        doc="total number of attempts before a notification is parked",
        kind="whole",
        default=str(ATTEMPTS_MAX_DEFAULT),
    ),
    SettingField(
        name="retry_delay_s", doc="seconds between attempts", kind="number", default=f"{RETRY_DELAY_S_DEFAULT:g}"
    ),
    SettingField(
        name="max_connections",
        doc="maximum number of open connections per node to this server with this user name",
        kind="whole",
        default=str(CONNECTIONS_DEFAULT),
        is_advanced=True,
    ),
    SettingField(
        name="connect_timeout_s",
        doc="timeout in seconds for name resolution, connection and TLS handshake",
        kind="number",
        default=f"{CONNECT_TIMEOUT_S:g}",
        is_advanced=True,
    ),
    SettingField(
        name="command_timeout_s",
        doc="timeout in seconds for the banner and the reply to each command",
        kind="number",
        default=f"{COMMAND_TIMEOUT_S:g}",
        is_advanced=True,
    ),
    SettingField(
        name="data_timeout_s",
        doc="timeout in seconds for the reply to the whole mail; a low value makes uncertain deliveries more likely",
        kind="number",
        default=f"{DATA_TIMEOUT_S:g}",
        is_advanced=True,
    ),
)

PHASES = (
    AttemptPhase(
        "token",
        "Token",
        "check oauth_token_url, oauth_client_id, oauth_client_secret and oauth_scope",
        "auth",
        ("oauth2",),
    ),
    AttemptPhase(
        "connect",
        "Connect",
        "check host, whether the port is reachable from here, and that tls matches the port (587 starttls, 465"
        " implicit, 25 none)",
    ),
    AttemptPhase(
        "ehlo", "Greeting", "check that this is a mail server and that it supports the configured tls and auth"
    ),
    AttemptPhase(
        "starttls",
        "TLS",
        "check that the certificate is valid for host and issued by a trusted authority (SSL_CERT_FILE)",
        "tls",
        ("starttls",),
    ),
    AttemptPhase(
        "auth",
        "Login",
        "check username and password; the account may be locked or require another authentication method",
        "auth",
        ("basic", "oauth2"),
    ),
    AttemptPhase(
        "mail",
        "Sender",
        "check that this user may send as from_address; many servers accept only the user's own address",
    ),
    AttemptPhase(
        "rcpt",
        "Recipient",
        "the server rejects this address: check the spelling, and whether the server may relay to it",
    ),
    AttemptPhase("data", "Message", "the server accepted sender and recipient but not the mail; its reply states why"),
    AttemptPhase(
        "dot", "Confirmation", "the server has not confirmed the mail: check whether it arrived before sending it again"
    ),
)

GUIDE = (files("fieldpost.central.adapters.email") / "guide.md").read_text("utf-8")
