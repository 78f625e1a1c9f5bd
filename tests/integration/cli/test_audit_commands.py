"""`fieldpost audit`: as people and programs use it."""

import json

from support.commands import Cli


async def test_the_log_is_listed_filtered_and_exported(cli: Cli) -> None:
    parked = await cli.front.park("550 no such user")
    ran = await cli("audit", "list", "--errors", role="viewer")
    assert ran.code == 0, ran.err
    assert "parked" in ran.out
    assert "550 no such user" in ran.out
    assert "notify_send" not in ran.out
    ran = await cli("audit", "list", "--about", parked, "--limit", "1", "--json", role="viewer")
    page = json.loads(ran.out)
    assert [one["status"] for one in page["entries"]] == ["parked"]
    ran = await cli("audit", "list", "--about", parked, "--limit", "1", "--cursor", page["next_cursor"])
    assert "attempted" in ran.out
    assert "More results: --cursor" in ran.out

    ran = await cli("audit", "export", "--about", parked)
    assert json.loads(ran.out.splitlines()[-1])["exported"] == 3
    target = cli.folder / "log.csv"
    target.write_text("what stood there before")
    ran = await cli("audit", "export", "--format", "csv", "--about", parked, "--output", "log.csv")
    assert (ran.code, ran.out, ran.err) == (0, "", "Exported 3 entries to log.csv.\n")
    assert target.read_text().count("notify_deliver") == 2
    assert [path.name for path in cli.folder.glob("*log*")] == ["log.csv"]


async def test_an_export_that_fails_leaves_what_stood_there(cli: Cli) -> None:
    target = cli.folder / "log.ndjson"
    target.write_text("what stood there before")
    ran = await cli("audit", "export", "--output", "log.ndjson", role="operator")
    assert ran.code == 6
    assert "access.role" in ran.err
    assert target.read_text() == "what stood there before"
    assert [path.name for path in cli.folder.glob("*log*")] == ["log.ndjson"]
    ran = await cli("audit", "export", "--output", "nowhere/log.ndjson")
    assert (ran.code, "cannot write" in ran.err) == (3, True)
    ran = await cli("audit", "list", "--errors", "--status", "parked")
    assert (ran.code, "cli.both" in ran.err) == (3, True)
