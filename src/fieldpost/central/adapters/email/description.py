"""An email channel as people set it up: its settings as fields, the phases of an attempt, and the guide."""

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
    SettingField(name="host", doc="name or address of the mail server, without smtp:// and port", is_required=True),
    SettingField(
        name="tls",
        doc="how the connection is protected; none is for this machine or a trusted network",
        kind="choice",
        choices=("starttls", "implicit", "none"),
        is_required=True,
    ),
    SettingField(
        name="port",
        doc="of the mail server",
        kind="whole",
        default=", ".join(f"{port} with {tls}" for tls, port in PORTS.items()),
    ),
    SettingField(name="from_address", doc="sender of every mail, and where bounces go", is_required=True),
    SettingField(
        name="auth",
        doc="how to log in: not at all, by user name and password, or by a token",
        kind="choice",
        choices=("none", "basic", "oauth2"),
        default="none",
    ),
    SettingField(name="username", doc="for basic and oauth2"),
    SettingField(name="password", doc="for basic"),
    SettingField(name="oauth_token_url", doc="for oauth2: where tokens are fetched", is_advanced=True),
    SettingField(name="oauth_client_id", doc="for oauth2", is_advanced=True),
    SettingField(name="oauth_client_secret", doc="for oauth2", is_advanced=True),
    SettingField(name="oauth_scope", doc="for oauth2, where the token's server wants one", is_advanced=True),
    SettingField(
        name="max_retries",
        doc="attempts in all before a notification is parked",
        kind="whole",
        default=str(ATTEMPTS_MAX_DEFAULT),
    ),
    SettingField(
        name="retry_delay_s", doc="seconds between two attempts", kind="number", default=f"{RETRY_DELAY_S_DEFAULT:g}"
    ),
    SettingField(
        name="max_connections",
        doc="open at a time to this server with this user name, from one node",
        kind="whole",
        default=str(CONNECTIONS_DEFAULT),
        is_advanced=True,
    ),
    SettingField(
        name="connect_timeout_s",
        doc="seconds for the name, the connection and its TLS",
        kind="number",
        default=f"{CONNECT_TIMEOUT_S:g}",
        is_advanced=True,
    ),
    SettingField(
        name="command_timeout_s",
        doc="seconds for the banner and the answer to each command",
        kind="number",
        default=f"{COMMAND_TIMEOUT_S:g}",
        is_advanced=True,
    ),
    SettingField(
        name="data_timeout_s",
        doc="seconds for the answer to the whole mail; lowering it means not knowing whether it was taken",
        kind="number",
        default=f"{DATA_TIMEOUT_S:g}",
        is_advanced=True,
    ),
)

PHASES = (
    AttemptPhase(
        "token",
        "Token",
        "check oauth_token_url, oauth_client_id, oauth_client_secret and the scope",
        "auth",
        ("oauth2",),
    ),
    AttemptPhase(
        "connect",
        "Connect",
        "is host right, is the port open from here, and does tls fit the port (587 starttls, 465 implicit, 25 none)?",
    ),
    AttemptPhase("ehlo", "Greeting", "does a mail server answer there, and does it offer what tls and auth ask for?"),
    AttemptPhase(
        "starttls",
        "TLS",
        "is the certificate valid for host, and from an authority that this machine trusts (SSL_CERT_FILE)?",
        "tls",
        ("starttls",),
    ),
    AttemptPhase(
        "auth",
        "Login",
        "check username and password; the account may be locked, or want another way to log in",
        "auth",
        ("basic", "oauth2"),
    ),
    AttemptPhase(
        "mail", "Sender", "may this login send as from_address? Many servers take only the login's own address"
    ),
    AttemptPhase(
        "rcpt", "Recipient", "the server does not take this address: is it spelled right, may this server relay to it?"
    ),
    AttemptPhase("data", "Mail offered", "the server took sender and recipient, and not the mail: its answer says why"),
    AttemptPhase(
        "dot", "Mail taken", "the server has not confirmed it: look whether the mail arrived before sending another"
    ),
)

GUIDE = (files("fieldpost.central.adapters.email") / "guide.md").read_text("utf-8")
