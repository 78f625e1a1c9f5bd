"""Central's addresses in site.toml."""

import os
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import ConfigError
from fieldpost.site.config.folder import read_folder
from fieldpost.site.repair.doctor import examine
from support.sample import NOW

TOKEN = "fp_site_abcdefghijkl_" + "a" * 52


def folder(path: Path, central: str) -> Path:
    (path / "site.toml").write_text(f'[site]\nname = "plant-7"\n[central]\n{central}\n')
    (path / "token").write_text(TOKEN)
    os.chmod(path / "token", 0o600)
    return path


@pytest.mark.parametrize(
    ("central", "urls"),
    [
        ('url = "https://a"', ["https://a"]),
        ('urls = ["https://a/"]', ["https://a"]),
        ('urls = ["https://b", "http://a:8025"]\nallow_plain = true', ["https://b", "http://a:8025"]),
        ('url = "https://c"\nurls = ["https://b", "https://a"]', ["https://c", "https://b", "https://a"]),
    ],
)
def test_addresses_are_kept_in_the_order_given(tmp_path: Path, central: str, urls: list[str]) -> None:
    endpoint = read_folder(folder(tmp_path, central)).endpoint()
    assert [one.url for one in endpoint.each()] == urls
    assert {one.token for one in endpoint.each()} == {TOKEN}


@pytest.mark.bad_input(51)
@pytest.mark.parametrize(
    ("central", "what"),
    [
        ("urls = []", "1 to 16"),
        ('urls = "https://a"', "1 to 16"),
        (f"urls = {[f'https://a{n}' for n in range(17)]}", "1 to 16"),
        ('urls = ["https://a", 7]', "must be a string"),
        ('urls = ["https://a", "ftp://b"]', "must be http"),
        ('urls = ["https://a", "https://a/"]', "twice"),
        ('url = "https://a"\nurls = ["https://a"]', "twice"),
        ("", "url is missing"),
        ('url = "https://a"\nallow_plain = "yes"', "allow_plain must be true or false"),
    ],
)
def test_invalid_addresses_are_rejected_naming_file_and_rule(tmp_path: Path, central: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read_folder(folder(tmp_path, central))
    assert "site.toml" in caught.value.message


@pytest.mark.threat(38)
def test_plain_http_address_is_rejected_before_the_token_is_used_and_reported_by_the_doctor(tmp_path: Path) -> None:
    def verdicts() -> list[str]:
        checks = examine(tmp_path, NOW).diagnosis.checks
        return [check.verdict.value for check in checks if check.name == "plain"]

    with pytest.raises(ConfigError) as refused:
        read_folder(folder(tmp_path, 'url = "http://central.example.org"')).endpoint()
    assert refused.value.code == "central.plain"
    assert verdicts() == ["failing"]
    assert read_folder(folder(tmp_path, 'url = "http://central.example.org"\nallow_plain = true')).endpoint()
    assert verdicts() == ["warning"]
    assert read_folder(folder(tmp_path, 'url = "http://127.0.0.1:8025"')).endpoint()
    assert verdicts() == []


@pytest.mark.threat(38)
def test_a_new_site_records_that_plain_http_was_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        Site.create(tmp_path / "site", "plant-7", "http://central.example.org", TOKEN)
    assert refused.value.code == "central.plain"
    assert not (tmp_path / "site").exists(), "nothing half-written"
    Site.create(tmp_path / "site", "plant-7", "http://central.example.org", TOKEN, allow_plain=True).close()
    assert read_folder(tmp_path / "site").allow_plain
