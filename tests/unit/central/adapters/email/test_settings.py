"""The settings of an email channel: what is taken, filled in and refused."""

import math
from typing import Any

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.errors import InvalidInput

LEAST = {"host": "mail.example", "tls": "starttls", "from_address": "alerts@plant.example"}


def check(**changes: Any) -> dict[str, object]:
    return EmailAdapter().check_settings(LEAST | changes)


def test_missing_settings_get_their_defaults() -> None:
    assert check() == {
        "host": "mail.example",
        "port": 587,
        "tls": "starttls",
        "from_address": "alerts@plant.example",
        "connect_timeout_s": 30,
        "command_timeout_s": 300,
        "data_timeout_s": 600,
        "max_connections": 10,
        "pipelining": "auto",
        "auth": "none",
    }


def test_checked_settings_pass_the_check_unchanged() -> None:
    full = check(port=2525, max_connections=3)
    assert EmailAdapter().check_settings(full) == full


@pytest.mark.parametrize(("tls", "port"), [("none", 25), ("starttls", 587), ("implicit", 465)])
def test_the_port_follows_the_tls_mode_unless_given(tls: str, port: int) -> None:
    assert check(tls=tls)["port"] == port
    assert check(tls=tls, port=2525)["port"] == 2525


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("Mail.Example", "mail.example"),
        ("localhost", "localhost"),
        ("mail_catcher", "mail_catcher"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("müller.example", "xn--mller-kva.example"),
    ],
)
def test_a_host_is_a_name_or_an_address(host: str, kept: str) -> None:
    assert check(host=host)["host"] == kept


REFUSED = [
    ("host", "", "is required"),
    ("host", None, "is required"),
    ("host", 5, "must be a str"),
    ("host", "smtp://mail.example", "without scheme"),
    ("host", "mail.example/x", "without scheme"),
    ("host", "mail .example", "spaces"),
    ("host", "mail.example\r\nRSET", "control"),
    ("host", "mail.example:25", "without a port"),
    ("host", "[::1]", "without a port"),
    ("host", "mail..example", "empty label"),
    ("host", "mail.example.", "end with a dot"),
    ("host", "-mail", "invalid domain label"),
    ("host", "127.1", "not a number"),
    ("host", "2130706433", "not a number"),
    ("host", "m" * 300, "over 253"),
    ("port", 0, "between 1 and 65535"),
    ("port", 70000, "between 1 and 65535"),
    ("port", -1, "between 1 and 65535"),
    ("port", "25", "whole number"),
    ("port", 25.0, "whole number"),
    ("port", True, "whole number"),
    ("port", None, "whole number"),
    ("from_address", "alerts", "exactly one @"),
    ("from_address", "alerts@plant.example\nBcc: x@y.z", "control"),
    ("from_address", "Alerts <alerts@plant.example>", "space"),
    ("from_address", "jörg@plant.example", "must be ASCII"),
    ("max_connections", 0, "between 1 and 1000"),
    ("max_connections", 10**9, "between 1 and 1000"),
    ("connect_timeout_s", 0, "more than 0"),
    ("connect_timeout_s", "5m", "seconds"),
    ("connect_timeout_s", math.nan, "seconds"),
    ("connect_timeout_s", math.inf, "seconds"),
    ("command_timeout_s", 901, "at most 900"),
    ("data_timeout_s", False, "seconds"),
]


@pytest.mark.bad_input(26)
@pytest.mark.parametrize(("field", "value", "rule"), REFUSED)
def test_invalid_setting_is_rejected_naming_field_and_rule(field: str, value: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule) as caught:
        check(**{field: value})
    assert caught.value.field == field
    assert caught.value.message.startswith(field)


@pytest.mark.bad_input(27)
@pytest.mark.parametrize("tls", ["start_tls", "STARTTLS", "ssl", "None", " none", "", None, False, 0, ["none"]])
def test_unknown_tls_mode_is_rejected(tls: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(tls=tls)
    assert caught.value.field == "tls"


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_setting_without_a_default_is_required(missing: str) -> None:
    settings = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(InvalidInput, match="is required") as caught:
        EmailAdapter().check_settings(settings)
    assert caught.value.field == missing


def test_unknown_setting_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="unknown setting") as caught:
        check(max_retry=3)
    assert caught.value.field == "max_retry"
