"""The commands that speak to central, against a real server."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from fieldpost.core.delivery.outcome import Pause, PermanentFailure, paused
from fieldpost.core.notification import Status
from support.commands import Cli

MAIL = ("--set", "host=127.0.0.1", "--set", "port=2525", "--set", "tls=none", "--set", "from_address=f@plant.example")


async def test_lists_and_channels_are_added_listed_changed_and_removed(cli: Cli) -> None:
    assert "fieldpost channels add" in (await cli("channels", "list")).out, "an empty list says what to do"
    assert (await cli("channels", "add", "mail", "--type", "email", *MAIL, "--default")).code == 0
    assert (await cli("channels", "change", "mail", "--set", "port=2526")).code == 0
    for command in (("list",), ("show", "mail")):
        assert "not tried yet" in (await cli("channels", *command)).out
    shown = json.loads((await cli("channels", "show", "mail", "--json")).out)
    assert (shown["settings"]["port"], shown["settings"]["host"], shown["is_default"]) == (2526, "127.0.0.1", True)
    added = await cli("lists", "add", "ops", "--target", "a@example.org", "--target", "b@example.org")
    assert added.out == "Added list ops with 2 targets.\n"
    listed = (await cli("lists", "list")).out
    assert "a@example.org, b@example.org" in listed
    assert "b@example.org" in (await cli("lists", "show", "ops")).out
    assert [(await cli(noun, "remove", name)).code for noun, name in (("lists", "ops"), ("channels", "mail"))] == [0, 0]
    assert json.loads((await cli("lists", "list", "--json")).out) == {"lists": []}


@pytest.mark.req("CHN-11", "CHN-12")
async def test_a_list_of_lists_is_added_changed_and_sent_to(cli: Cli) -> None:
    centre = cli.front.centre
    await centre.add_channel()
    for name in ("mail", "duty"):
        assert (await cli("lists", "add", name, "--target", f"{name}@example.org")).code == 0
    added = await cli("lists", "add", "alarm", "--type", "lists", "--target", "mail", "--target", "duty")
    assert added.out == "Added list alarm with 2 targets.\n"
    shown = (await cli("lists", "show", "alarm")).out
    assert shown.count("(of each list)") == 4
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("target:")] == ["duty", "mail"]
    refused = await cli("lists", "change", "alarm", "--add-target", "alarm")
    assert (refused.code, "list.nested" in refused.err) == (3, True)
    whole = await centre.send("alarm")
    centre.adapter.answer("duty", PermanentFailure("550 no such user"))
    await centre.deliver()
    why = " ".join((await cli("notifications", "explain", whole, role="viewer")).out.split())
    assert "1 of 2 parts is delivered. List 'duty': It was parked" in why


@pytest.mark.req("CHN-02", "CHN-03")
async def test_a_channel_is_shown_with_its_rate_its_pause_and_its_queue(cli: Cli) -> None:
    centre = cli.front.centre
    await centre.add_channel("chat", rate="6/1h")
    await centre.add_list("ops")
    centre.adapter.answer("ops", paused(Pause(timedelta(minutes=5), "slow down")))
    await centre.send_many(4)
    await centre.deliver()
    for out in [(await cli("channels", *command, role="viewer")).out for command in (("list",), ("show", "chat"))]:
        assert "6/1h" in out
        assert "slow down" in out
        assert "until 2026-" in out
    shown = (await cli("channels", "show", "chat")).out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("waiting:")] == ["4"]


@pytest.mark.req("CMD-04", "CMD-05")
async def test_notifications_are_listed_shown_retried_and_discarded(cli: Cli) -> None:
    front = cli.front
    first = await front.park("550 no such user", subject="Pump 3 is hot", body="It has 93 °C.")
    second = await front.park("550 no such user", subject="Tank 12 is low")
    listed = (await cli("notifications", "list", "--status", "parked", role="viewer")).out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [second, first]
    assert len(json.loads((await cli("notifications", "list", "--limit", "1", "--json")).out)["notifications"]) == 1
    shown = (await cli("notifications", "show", first, role="operator")).out
    for text in ("Pump 3 is hot", "parked", "ops@example.org", "550 no such user", "notify_deliver", "It has 93 °C."):
        assert text in shown
    assert (await cli("notifications", "retry", first, role="operator")).out == f"Retrying {first}.\n"
    assert (await cli("notifications", "discard", second, role="operator")).out == f"Discarded {second}.\n"
    assert [(await front.centre.get(i)).status for i in (first, second)] == [Status.PENDING, Status.DISCARDED]
    again = await cli("notifications", "discard", second, role="operator")
    assert (again.code, "notification.not_parked" in again.err) == (5, True)


async def test_errors_are_one_line_on_stderr_with_the_documented_exit_code(cli: Cli) -> None:
    cases = {
        ("lists", "add", "ops", "--target", "nonsense"): (3, "targets[0]"),
        ("lists", "show", "nothing"): (4, "list.unknown"),
        ("sites", "add", "plant-7"): (5, "site.exists"),
        ("channels", "add", "x", "--set", "host"): (3, "--set must be name=value"),
    }
    for arguments, (code, text) in cases.items():
        ran = await cli(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
        assert text in ran.err
    assert (await cli("sites", "add", "x", role="viewer")).code == 6
    assert (await cli("sites", "list", role=None, FIELDPOST_TOKEN="nonsense")).code == 6
    assert (await cli("sites", "list", FIELDPOST_URL="http://127.0.0.1:1")).code == 7
    assert (await cli("sites", "list", FIELDPOST_URL="ftp://x")).code == 8
    assert (await cli("sites", "list", role=None)).code == 8
    assert (await cli("sites", "list", "--nonsense")).code == 2


async def test_errors_are_json_with_json(cli: Cli) -> None:
    unknown = await cli("lists", "show", "nothing", "--json")
    error = json.loads(unknown.err)["error"]
    assert (unknown.code, unknown.out, error["code"]) == (4, "", "list.unknown")
    invalid = json.loads((await cli("--json", "lists", "add", "ops", "--target", "nonsense")).err)["error"]
    assert (invalid["field"], "targets[0]" in invalid["message"]) == ("targets[0]", True)


async def test_token_is_read_from_the_environment_or_a_file_and_never_from_the_command_line(cli: Cli) -> None:
    token = cli.front.tokens["viewer"]
    (cli.folder / "mine").write_text(token + "\n")
    assert (await cli("sites", "list", "--token-file", "mine", role=None)).code == 0
    assert (await cli("sites", "list", role=None, FIELDPOST_TOKEN_FILE="mine")).code == 0
    (cli.folder / "fieldpost-data").mkdir()
    (cli.folder / "fieldpost-data" / "api-token").write_text(token)
    assert (await cli("sites", "list", role=None)).code == 0
    assert (await cli("sites", "list", "--token", token, role=None)).code == 2
    assert (await cli("sites", "list", role=None, FIELDPOST_TOKEN="a\nb")).code == 8


async def test_text_of_a_site_cannot_control_the_terminal(cli: Cli) -> None:
    evil = await cli.front.park("550 \x1b[2J\x1b]0;owned\x07", subject="\x1b[31mred [bold]not bold[/bold]")
    for arguments in (("notifications", "list"), ("notifications", "show", evil)):
        out = (await cli(*arguments)).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "[bold]not bold[/bold]" in out


async def test_closed_pipe_is_not_an_error(cli: Cli) -> None:
    await cli.front.centre.send_many(50)
    fieldpost = Path(sys.executable).with_name("fieldpost")
    given = {"PATH": os.environ["PATH"], "FIELDPOST_URL": cli.url, "FIELDPOST_TOKEN": cli.front.tokens["viewer"]}
    command = f"set -o pipefail; {fieldpost} notifications list --json | head -c 10"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command), env=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
