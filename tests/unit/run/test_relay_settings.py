"""Settings of the relay: one file may serve central too, and every bad value is named."""

from dataclasses import fields
from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.run.relay_settings import CENTRAL_SECTIONS, RelaySettings, load_relay
from fieldpost.run.settings import RELAY_SECTIONS, CentralSettings, load


def test_each_process_skips_the_sections_of_the_other() -> None:
    own = {section.name for section in fields(RelaySettings)}
    central = {section.name for section in fields(CentralSettings)}
    assert own - central == RELAY_SECTIONS
    assert central - own == CENTRAL_SECTIONS


def test_one_file_serves_central_and_relay(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    file.write_text('[central]\nport = 9000\n[relay]\nurl = "https://central.example"\n[log]\nlevel = "debug"\n')
    environ = {"FIELDPOST_RELAY__POLL_S": "0.25", "FIELDPOST_DISPATCH__INTERVAL_S": "5"}
    relay = load_relay(file, environ)
    assert (relay.relay.url, relay.relay.poll_s, relay.log.level) == ("https://central.example", 0.25, "debug")
    assert load(file, environ).central.port == 9000


@pytest.mark.dec("DEC-84")
def test_the_default_policy_has_no_limit() -> None:
    policy = load_relay(None, {}).relay.retry_policy
    waits = [policy.delay(count, 0.0) for count in (1, 2, 3, 9, 10, 5000)]
    assert [wait.total_seconds() if wait else None for wait in waits] == [10, 20, 40, 2560, 3600, 3600]


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("RETRY", "fixed:soon:3", "relay.retry"),
        ("LEASE_S", "0.1", "relay.lease_s"),
        ("TIMEOUT_S", "40", "relay.timeout_s"),
        ("BATCH_SIZE", "501", "relay.batch_size"),
        ("SENT_DAYS", "0", "relay.sent_days"),
        ("POLL_S", "nan", "relay.poll_s"),
        ("IN_FLIGHT_MAX", "0", "relay.in_flight_max"),
    ],
)
def test_a_bad_value_is_named(name: str, text: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_relay(None, {f"FIELDPOST_RELAY__{name}": text})
    assert caught.value.field == field


def test_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text("[relay]\npol_s = 1\n")
    with pytest.raises(ConfigError, match=r"relay\.pol_s is not a setting"):
        load_relay(file, {})
