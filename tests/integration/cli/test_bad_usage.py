"""What people get wrong on the command line: an exit code, a message on stderr, no traceback, nothing done."""

import asyncio
import json

import pytest

from support.commands import Cli


@pytest.mark.bad_input(49)
async def test_wrong_usage_has_its_exit_code_and_no_traceback(cli: Cli) -> None:
    cases: list[tuple[tuple[str, ...], int, str]] = [
        (("lists", "list", "--unknown"), 2, "No such option"),
        (("lists", "frobnicate"), 2, "No such command"),
        (("lists", "show"), 2, "Missing argument"),
        (("notifications", "list", "--limit", "many"), 2, "Invalid value"),
        (("notifications", "list", "--limit", "-1"), 3, "limit.range"),
        (("lists", "import", "there-is-no\nsuch-file.csv"), 3, "cli.file"),
        (("lists", "show", "-"), 4, "list.unknown"),
        (("lists", "show", "no\nlist"), 4, "http.no_such_path"),
        (("lists", "list", "--url", "ftp://x"), 8, "central"),
    ]
    for arguments, code, word in cases:
        ran = await cli(*arguments)
        assert (ran.code, word in ran.err) == (code, True), (arguments, ran)
        assert "Traceback" not in ran.err
        assert code == 2 or ran.err.count("\n") == 1, "one line, whatever a name holds"
    no_token = await cli("lists", "list", "--token-file", "no\nfile", role=None)
    assert (no_token.code, "cli.no_token" in no_token.err, no_token.err.count("\n")) == (8, True, 1)


@pytest.mark.bad_input(49)
@pytest.mark.parametrize("is_first", [True, False])
async def test_wrong_usage_with_json_is_an_object_on_stderr(cli: Cli, is_first: bool) -> None:
    """It is found before the options are read, wherever `--json` stands."""
    cases: list[tuple[tuple[str, ...], str, str]] = [
        (("lists", "list", "--unknown"), "No such option: --unknown", "see `fieldpost lists list --help`"),
        (("lists", "frobnicate"), "No such command 'frobnicate'.", "see `fieldpost lists --help`"),
        (("lists", "show"), "Missing argument", "see `fieldpost lists show --help`"),
        (("notifications", "list", "--limit", "many"), "Invalid value", "see `fieldpost notifications list --help`"),
        (("notifications", "retry"), "Invalid value: give ids", "see `fieldpost notifications retry --help`"),
    ]
    for arguments, message, hint in cases:
        ran = await cli(*(("--json", *arguments) if is_first else (*arguments, "--json")))
        error = json.loads(ran.err)["error"]
        assert (ran.code, ran.out, error["code"], error["hint"]) == (2, "", "cli.usage", hint)
        assert error["message"].startswith(message)
    done = await cli("lists", "list", "--json")
    assert (done.code, json.loads(done.out)["lists"], done.err) == (0, [], "")


@pytest.mark.bad_input(49)
async def test_closed_pipe_is_not_an_error(cli: Cli) -> None:
    process = await cli.begin("lists", "export", "--format", "json")
    assert process.stdout is not None
    process.stdout._transport.close()  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        await process.wait()
        assert process.stderr is not None
        said = await process.stderr.read()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.bad_input(50)
async def test_no_command_takes_a_token_as_an_argument(cli: Cli) -> None:
    """There every user of the machine could read it: only the environment, a file or a profile has it."""
    token = cli.front.tokens["admin"]
    for arguments in (
        ("lists", "list", "--token", token),
        ("--token", token, "lists", "list"),
        ("login", cli.url, token),
        ("login", cli.url, "--token", token),
    ):
        ran = await cli(*arguments, role=None)
        assert (ran.code, "Traceback" in ran.err) == (2, False), (arguments, ran)
