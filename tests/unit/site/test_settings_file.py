"""`site.toml` as people get it wrong: each mistake is refused with the file, and the line or the key."""

from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.site.config.folder import SETTINGS_BYTES_MAX, read_folder

GOOD = '[site]\nname = "plant-7"\n\n[central]\nurl = "http://127.0.0.1:9"\n'


@pytest.mark.bad_input(51)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "[site] name is missing"),
        (GOOD.encode() + b"[local]\nport = 1\nport = 2\n", "line 8"),
        (GOOD.encode() + b"[local\n", "line 6"),
        (GOOD.encode() + b"[colour]\nred = 1\n", "colour is unknown"),
        (GOOD.encode() + b"[local]\nprot = 1\n", "local.prot is unknown"),
        (GOOD.encode() + b'[local]\nport = "8026"\n', "local.port must be a number"),
        (GOOD.encode() + b"[local]\nport = 70000\n", "local.port must be a number from 0 to 65535"),
        (GOOD.encode() + b"[local]\nsocket = 1\n", "local.socket must be true or false"),
        (GOOD.encode() + b"local = 3\n", "central.local is unknown"),
        (b"local = 3\n" + GOOD.encode(), "local must be a section, written [local]"),
        (GOOD.replace("http:", "gopher:").encode(), "gopher"),
        (GOOD.replace('"plant-7"', "7").encode(), "site.name"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le"), "cannot be read"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "line 1"),
        (GOOD.encode() + b"#" * SETTINGS_BYTES_MAX, "must be at most"),
    ],
)
def test_invalid_settings_file_is_rejected_by_line_or_key(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "site.toml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_folder(tmp_path)
    assert said in caught.value.message
    assert str(tmp_path / "site.toml") in caught.value.message


@pytest.mark.bad_input(51)
def test_missing_settings_file_or_folder_in_its_place_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_folder(tmp_path)
    assert caught.value.code == "site.no_settings"
    (tmp_path / "site.toml").mkdir()
    with pytest.raises(ConfigError) as caught:
        read_folder(tmp_path)
    assert "cannot be read" in caught.value.message


def test_tabs_and_comments_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(GOOD.replace(" = ", "\t=\t") + "# the end\n")
    assert read_folder(tmp_path).name == "plant-7"
