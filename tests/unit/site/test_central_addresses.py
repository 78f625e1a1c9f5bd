"""Central's addresses in site.toml."""

import os
from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.site.config.folder import read_folder

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
        ('urls = ["https://b", "http://a:8025"]', ["https://b", "http://a:8025"]),
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
    ],
)
def test_addresses_that_cannot_be_meant_are_refused_by_file_and_rule(tmp_path: Path, central: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read_folder(folder(tmp_path, central))
    assert "site.toml" in caught.value.message
