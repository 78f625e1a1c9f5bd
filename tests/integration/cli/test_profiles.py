"""Profiles: log in once, and no command need be told where central is."""

import json
import stat
from pathlib import Path

import pytest

from support.commands import Cli


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "FIELDPOST_URL": ""}


async def test_logged_in_user_needs_no_further_options(cli: Cli, home: dict[str, str], tmp_path: Path) -> None:
    done = await cli("login", cli.url, role="operator", **home)
    assert (done.code, "operator" in done.out) == (0, True), done.err
    file = tmp_path / "config/fieldpost/profiles/default.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = await cli("me", "--json", role=None, **home)
    assert json.loads(shown.out)["role"] == "operator", shown.err
    listed = await cli("profiles", "--json", role=None, **home)
    assert json.loads(listed.out) == {"profiles": [{"name": "default", "url": cli.url}]}
    gone = await cli("logout", "--json", role=None, **home)
    assert json.loads(gone.out) == {"profile": "default", "is_revoked": False}
    assert not file.exists()
    after = await cli("me", "--url", cli.url, role=None, **home)
    assert (after.code, "cli.no_token" in after.err) == (8, True)


async def test_options_have_precedence_over_the_profile(cli: Cli, home: dict[str, str]) -> None:
    for name in ("viewer", "admin"):
        assert (await cli("login", cli.url, "--profile", name, role=name, **home)).code == 0
    shown = await cli("--profile", "viewer", "me", "--json", role=None, **home)
    assert json.loads(shown.out)["role"] == "viewer"
    chosen = await cli("me", "--json", role=None, FIELDPOST_PROFILE="admin", **home)
    assert json.loads(chosen.out)["role"] == "admin"
    by_token = await cli("--profile", "viewer", "me", "--json", role="operator", **home)
    assert json.loads(by_token.out)["role"] == "operator"
    unreachable = await cli("--profile", "viewer", "me", "--url", "http://127.0.0.1:9", role="viewer", **home)
    assert (unreachable.code, "central.unreachable" in unreachable.err) == (7, True)


async def test_token_of_a_profile_is_sent_to_its_own_address_only(cli: Cli, home: dict[str, str]) -> None:
    assert (await cli("login", cli.url, role="viewer", **home)).code == 0
    other = await cli("me", "--url", cli.url.replace("127.0.0.1", "localhost"), role=None, **home)
    assert (other.code, "cli.no_token" in other.err) == (8, True)


@pytest.mark.bad_input(49)
async def test_invalid_profiles_are_rejected_and_not_stored(cli: Cli, home: dict[str, str], tmp_path: Path) -> None:
    cases = [
        (("login", cli.url, "--profile", "../x"), 3, "profile.name"),
        (("--profile", "nobody", "me"), 4, "profile.unknown"),
        (("logout",), 4, "profile.unknown"),
        (("login", "nonsense"), 8, "central"),
    ]
    for arguments, code, word in cases:
        ran = await cli(*arguments, **home)
        assert (ran.code, word in ran.err) == (code, True), (arguments, ran)
        assert "Traceback" not in ran.err
    wrong = await cli("login", cli.url, role=None, FIELDPOST_TOKEN="fp_api_wrong", **home)
    assert (wrong.code, "auth.invalid" in wrong.err) == (6, True)
    assert not (tmp_path / "config/fieldpost/profiles").exists()


async def test_damaged_profile_is_reported_with_its_file(cli: Cli, home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config/fieldpost/profiles/default.json"
    file.parent.mkdir(parents=True)
    for content in (b"", b"{", b"[]", b'{"url": "http://x"}', b"\xff\xfe"):
        file.write_bytes(content)
        ran = await cli("me", role=None, **home)
        assert (ran.code, "profile.unreadable" in ran.err, str(file) in ran.err) == (8, True, True), (content, ran)


async def test_revoking_at_logout_makes_the_token_worthless(cli: Cli, home: dict[str, str]) -> None:
    made = await cli("tokens", "add", "laptop", "--role", "viewer", "--json", role="admin")
    token = json.loads(made.out)["token"]
    assert (await cli("login", cli.url, role=None, FIELDPOST_TOKEN=token, **home)).code == 0
    assert (await cli("logout", "--revoke", role=None, **home)).code == 0
    assert (await cli("me", role=None, FIELDPOST_TOKEN=token)).code == 6
