"""A settings file of central that cannot be meant: the start refuses, and says which file, line and key."""

from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.run.settings import CentralSettings, load
from fieldpost.run.settings_file import FILE_BYTES_MAX


def refused(file: Path, content: bytes) -> ConfigError:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(file, {})
    return error.value


@pytest.mark.bad_input(51)
def test_invalid_settings_file_is_rejected_naming_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    with pytest.raises(ConfigError, match="does not exist"):
        load(file, {})
    cases = {
        b"[central]\nport = 1\nport = 2\n": "line 3",
        b"[central]\nport = 1\n[central]\n": "line 3",
        b"[central]\nport = \n": "line 2",
        b"[central\n": "line 1",
        b"port: 8025\n": "line 1",
        b"\xef\xbb\xbf[central]\n": "line 1",
        b"[central]\nhost = \xff\n": "utf-8",
        b"#" * (FILE_BYTES_MAX + 1): "larger",
    }
    for content, word in cases.items():
        error = refused(file, content)
        assert (error.code, str(file) in error.message, word in error.message) == ("settings.file", True, True), (
            content[:40],
            error.message,
        )
    file.write_bytes(b"")
    assert load(file, {}) == CentralSettings(), "an empty one says nothing"
    file.write_bytes(b"[central]\n\tport\t=\t9\t\n")
    assert load(file, {}).central.port == 9, "tabs are spaces"


@pytest.mark.bad_input(51)
def test_unknown_key_or_value_of_another_type_is_rejected_naming_the_key(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    cases = {
        b"[centrall]\n": ("settings.unknown", "[centrall]"),
        b"[central]\nprot = 1\n": ("settings.unknown", "central.prot"),
        b"port = 1\n": ("settings.unknown", "[port]"),
        b'[central]\nport = "1"\n': ("settings.type", "central.port"),
        b"[central]\nport = 1.5\n": ("settings.type", "central.port"),
        b"[log]\njson = 1\n": ("settings.type", "log.json"),
        b"central = 1\n": ("settings.type", "[central]"),
        b'[dispatch]\ninterval_s = "$INTERVAL"\n': ("settings.type", "dispatch.interval_s"),
    }
    for content, (code, word) in cases.items():
        error = refused(file, content)
        assert (error.code, word in error.message) == (code, True), (content, error.message)


@pytest.mark.bad_input(52)
def test_value_that_breaks_a_rule_is_rejected_with_the_rule(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    cases = {
        b"[dispatch]\nlease_s = 10\nrenew_s = 5\n": ("dispatch.lease_s", "three times"),
        b"[upkeep]\nlease_s = 10\nrenew_s = 5\n": ("upkeep.lease_s", "three times"),
        b"[dispatch]\ninterval_s = 0\n": ("dispatch.interval_s", "greater than 0"),
        b"[dispatch]\ninterval_s = -1\n": ("dispatch.interval_s", "greater than 0"),
        b"[dispatch]\ninterval_s = nan\n": ("dispatch.interval_s", "greater than 0"),
        b"[upkeep]\nterminal_retention_days = 0\n": ("upkeep.terminal_retention_days", "greater than 0"),
        b"[upkeep]\naudit_retention_days = -7\n": ("upkeep.audit_retention_days", "greater than 0"),
        b"[upkeep]\nterminal_retention_days = 1e9\n": ("upkeep.terminal_retention_days", "hundred years"),
        b"[central]\nport = 65536\n": ("central.port", "65535"),
        b"[front]\nitems_per_s = 0\n": ("front.items_per_s", "above 0"),
        b"[ingest]\ncredits = 0\n": ("ingest.credits", "at least 1"),
    }
    for content, (key, rule) in cases.items():
        error = refused(file, content)
        assert (error.field, rule in error.message) == (key, True), (content, error.field, error.message)
