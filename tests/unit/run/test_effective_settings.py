"""The settings in force: value, default, origin, and no secret; nor one in a file that all can read."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from fieldpost.core.checks import CheckVerdict
from fieldpost.core.errors import ConfigError
from fieldpost.core.setting import EffectiveSetting, open_secrets, shown
from fieldpost.run.doctor import examine
from fieldpost.run.effective_settings import effective_settings, origins, secret_keys
from fieldpost.run.exposure import refuse_exposure
from fieldpost.run.settings import CentralSettings, load

ENVIRONMENT = {
    "FIELDPOST_DISPATCH__SLOTS": "32",
    "FIELDPOST_DISPATCH__BATCH_SIZE": "100",
    "FIELDPOST_SECRETS__KEY": "canary",
}


@pytest.fixture
def by_key(tmp_path: Path) -> dict[str, EffectiveSetting]:
    """A file, an environment that replaces one of its lines, and a command line that replaces another."""
    file = tmp_path / "fieldpost.toml"
    file.write_text(
        "[dispatch]\nslots = 16\ninterval_s = 3\n[central]\nport = 9000\nstore = 'postgresql://a:canary@h/d'\n"
    )
    settings = load(file, ENVIRONMENT)
    said = replace(settings, central=replace(settings.central, port=9001))
    return {one.key: one for one in effective_settings(said, origins(said, file, ENVIRONMENT))}


def test_every_setting_has_its_description(by_key: dict[str, EffectiveSetting]) -> None:
    expected = [
        f"{s.name}.{option.name}"
        for s in fields(CentralSettings)
        for option in fields(getattr(CentralSettings(), s.name))
    ]
    assert list(by_key) == expected
    assert all(one.description for one in by_key.values())


def test_every_value_has_its_source(by_key: dict[str, EffectiveSetting]) -> None:
    told = {key: (one.value, one.origin.split()[0], one.is_default) for key, one in by_key.items()}
    assert told["dispatch.interval_s"] == (3.0, "file", False)
    assert told["dispatch.slots"] == (32, "environment", False)
    assert told["dispatch.batch_size"] == (100, "environment", True), "said, and the same as the default"
    assert told["central.port"] == (9001, "command", False)
    assert told["dispatch.lease_s"][1:] == ("default", True)
    assert by_key["dispatch.slots"].origin == "environment FIELDPOST_DISPATCH__SLOTS"
    assert by_key["dispatch.interval_s"].unit == "seconds"


@pytest.mark.req("DEC-34")
@pytest.mark.threat(23)
def test_effective_settings_contain_no_secret(by_key: dict[str, EffectiveSetting]) -> None:
    assert "canary" not in str(by_key)
    assert by_key["secrets.key"].value == "***"
    assert by_key["central.store"].value == "postgresql://a:***@h/d"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "postgresql://h/d?user=a&password=canary&sslmode=require",
            "postgresql://h/d?user=a&password=***&sslmode=require",
        ),
        ("postgresql://a:can@ary@h/d", "postgresql://a:***@h/d"),
        ("postgresql://a@h/d", "postgresql://a@h/d"),
        ("postgresql://a:canary@h1:1,h2:2/d", "postgresql://a:***@h1:1,h2:2/d"),
        ("postgresql://a:canary@/d?host=h1:1,h2:2", "postgresql://a:***@/d?host=h1:1,h2:2"),
        ("sqlite:////var/lib/fieldpost/central.db", "sqlite:////var/lib/fieldpost/central.db"),
        ("", ""),
        (5, 5),
    ],
)
def test_a_password_in_an_address_is_not_shown(value: str | int, expected: str | int) -> None:
    assert shown(value, is_secret=False) == expected


def test_settings_created_by_a_program_have_that_source() -> None:
    settings = CentralSettings()
    told = effective_settings(replace(settings, dispatch=replace(settings.dispatch, slots=7)))
    assert [one.key for one in told if one.origin != "default"] == ["dispatch.slots"]


@pytest.mark.parametrize(
    ("mode", "keys"),
    [(0o644, ("central.store", "secrets.key")), (0o604, ("central.store", "secrets.key")), (0o640, ()), (0o600, ())],
)
def test_secret_in_a_world_readable_file_is_found_by_its_setting(mode: int, keys: tuple[str, ...]) -> None:
    values = {"central.port": 9, "central.store": "postgresql://a:canary@h/d", "secrets.key": "canary", "log.level": ""}
    assert open_secrets(mode, values, secret_keys()) == keys
    assert open_secrets(mode, {"central.store": "postgresql://a@h/d", "secrets.key": ""}, secret_keys()) == ()


@pytest.mark.bad_input(51)
def test_central_does_not_start_with_a_world_readable_secret(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    file.write_text("[central]\nstore = 'postgresql://a:canary@h/d'\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError) as refused:
        refuse_exposure(file)
    assert (refused.value.code, refused.value.field) == ("settings.exposed", "central.store")
    assert str(file) in refused.value.message
    assert refused.value.hint == f"chmod 600 {file}, or set FIELDPOST_CENTRAL__STORE instead"
    assert "canary" not in f"{refused.value.message}{refused.value.hint}"
    file.chmod(0o600)
    refuse_exposure(file)
    refuse_exposure(tmp_path / "nothing.toml")


async def test_doctor_fails_on_a_world_readable_secret(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    file.write_text(f"[central]\nfolder = '{tmp_path}'\n[secrets]\nkey = 'canary'\n")
    file.chmod(0o644)
    first, *_ = (await examine(load(file, {}), file=file)).checks
    assert (first.name, first.verdict, "(secrets.key)" in first.detail) == ("settings", CheckVerdict.FAILING, True)
    file.chmod(0o600)
    assert "settings" not in [check.name for check in (await examine(load(file, {}), file=file)).checks]
