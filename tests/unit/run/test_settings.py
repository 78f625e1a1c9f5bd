"""Settings: a section is a room, its keys are the room's options, and the environment wins over the file."""

from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.run.settings import CentralSettings, load


def from_file(tmp_path: Path, text: str, **environ: str) -> CentralSettings:
    file = tmp_path / "fieldpost.toml"
    file.write_text(text)
    return load(file, environ)


@pytest.mark.req("CFG-03", "CFG-04", "CFG-05", "CFG-06", "CFG-07", "CFG-08")
def test_without_a_file_every_setting_has_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert settings == CentralSettings()
    assert (settings.dispatch.interval_s, settings.dispatch.batch_size) == (10, 100)
    assert (settings.watch.stuck_after_s, settings.watch.delivered_window_s) == (600, 60)
    assert (settings.upkeep.terminal_retention_days, settings.upkeep.purge_interval_s) == (365, 86400)


@pytest.mark.req("CFG-09", "CFG-12")
def test_options_bind_from_the_sections_of_the_file(tmp_path: Path) -> None:
    settings = from_file(
        tmp_path,
        """
        [dispatch]
        interval_s = 3
        batch_size = 50
        [upkeep]
        terminal_retention_days = 30
        purge_interval_s = 3600
        [watch]
        stuck_after_s = 120
        delivered_window_s = 300
        """,
    )
    assert (settings.dispatch.interval_s, settings.dispatch.batch_size) == (3, 50)
    assert (settings.upkeep.terminal_retention_days, settings.upkeep.purge_interval_s) == (30, 3600)
    assert (settings.watch.stuck_after_s, settings.watch.delivered_window_s) == (120, 300)
    assert settings.dispatch.slots == CentralSettings().dispatch.slots


@pytest.mark.req("CFG-09")
def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, "[dispatch]\ninterval_s = 3\n", FIELDPOST_DISPATCH__INTERVAL_S="4.5")
    assert settings.dispatch.interval_s == 4.5


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("[dispatch]\ninterval = 3", "settings.unknown", "dispatch.interval"),
        ("[outbox]\ninterval_s = 3", "settings.unknown", None),
        ("[dispatch]\nbatch_size = 'many'", "settings.type", "dispatch.batch_size"),
        ("[dispatch]\ninterval_s = 0", "settings.range", "dispatch.interval_s"),
        ("[outbound]\nconnections_per_host = 0", "settings.range", "outbound.connections_per_host"),
        ("[outbound]\nlookup_timeout_s = 0", "settings.range", "outbound.lookup_timeout_s"),
        ("[upkeep]\nterminal_retention_days = 0", "settings.range", "upkeep.terminal_retention_days"),
        ("[watch]\nstuck_after_s = 0", "settings.range", "watch.stuck_after_s"),
        ("upkeep = 3", "settings.type", "upkeep"),
        ("[dispatch", "settings.file", None),
    ],
)
def test_invalid_setting_is_rejected_by_name(tmp_path: Path, text: str, code: str, field: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, text)
    assert (caught.value.code, caught.value.field) == (code, field)


@pytest.mark.req("ZGW-13")
def test_the_zgw_api_needs_a_public_url(tmp_path: Path) -> None:
    file = tmp_path / "fieldpost.toml"
    file.write_text("[zgw]\nenabled = true\n")
    with pytest.raises(ConfigError, match=r"zgw\.enabled needs front.public_url"):
        load(file, {})
    assert load(file, {"FIELDPOST_FRONT__PUBLIC_URL": "https://a.example"}).zgw.enabled
    with pytest.raises(ConfigError, match=r"zgw\.retry"):
        load(file, {"FIELDPOST_FRONT__PUBLIC_URL": "https://a.example", "FIELDPOST_ZGW__RETRY": "sometimes"})
