"""`--url`, `--token-file` and `--json` before and after the command."""

import json

import pytest

from support.commands import Cli


async def test_shared_options_are_accepted_before_and_after_the_command(cli: Cli) -> None:
    before, after = await cli("--json", "lists", "list"), await cli("lists", "list", "--json")
    assert (before.code, before.out) == (0, after.out)
    assert json.loads(before.out) == {"lists": []}
    (cli.folder / "token").write_text(cli.front.tokens["viewer"])
    for arguments in (("--token-file", "token", "me"), ("me", "--token-file", "token")):
        ran = await cli(*arguments, "--json", role=None)
        assert json.loads(ran.out)["role"] == "viewer", ran.err


@pytest.mark.parametrize("arguments", [("--url", "{url}", "me"), ("me", "--url", "{url}")])
async def test_command_line_has_precedence_over_the_environment(cli: Cli, arguments: tuple[str, ...]) -> None:
    given = [part.format(url=cli.url) for part in arguments]
    assert (await cli(*given, FIELDPOST_URL="http://127.0.0.1:1")).code == 0
    assert (await cli("me", FIELDPOST_URL="http://127.0.0.1:1")).code == 7


async def test_last_value_on_the_command_line_wins(cli: Cli) -> None:
    assert (await cli("--url", "http://127.0.0.1:1", "me", "--url", cli.url)).code == 0
