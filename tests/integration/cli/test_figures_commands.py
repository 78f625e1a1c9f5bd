"""`fieldpost kpis` and `fieldpost nodes` against a real central."""

import asyncio
import json
from pathlib import Path

import pytest

from fieldpost.core.kpi import NAMES
from fieldpost.testing import ManualClock
from support.centre import open_centre
from support.commands import fieldpost_here
from support.running_central import RunningCentral, until

QUICK = {"FIELDPOST_UPKEEP__SAMPLE_INTERVAL_S": "1"}


async def fieldpost(node: RunningCentral, *arguments: str) -> tuple[int, str, str]:
    """The command with the token that the node's first start wrote."""
    environ = {
        "FIELDPOST_URL": node.url,
        "FIELDPOST_TOKEN_FILE": str(node.folder / "api-token"),
        "COLUMNS": "200",
    }
    ran = await asyncio.to_thread(fieldpost_here, *arguments, environ=environ)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.mark.req("KPI-01", "TOP-04", "DEC-17")
async def test_kpis_and_nodes_are_shown_on_the_command_line(sqlite_url: str, tmp_path: Path) -> None:
    async with open_centre(sqlite_url, ManualClock()) as centre:
        # For a list that has no channel: it parks at the first sweep.
        await centre.send(site="north")
    async with RunningCentral(sqlite_url, tmp_path / "data", environment=QUICK) as node:

        async def has_parked() -> bool:
            return bool(json.loads((await fieldpost(node, "kpis", "--json"))[1])["kpis"]["parked"])

        await until(has_parked, 30, "the row to park")
        _, shown, _ = await fieldpost(node, "kpis")
        assert [line.split() for line in shown.splitlines()[1:]][3] == ["parked", "1"]
        assert [line.split()[0] for line in shown.splitlines()] == ["kpi", *NAMES]
        _, by_site, _ = await fieldpost(node, "kpis", "--sites")
        assert [line.split()[:5] for line in by_site.splitlines()] == [
            ["site", *NAMES[:4]],
            ["north", "0", "0", "0", "1"],
        ]

        async def has_history() -> list[str] | None:
            _, out, _ = await fieldpost(node, "kpis", "--history", "parked", "--site", "north")
            lines = out.splitlines()
            return lines if any(line.split()[-1:] == ["1"] for line in lines) else None

        lines = await until(has_history, 30, "a sample of the parked row")
        assert lines[0].split() == ["at", "parked"]
        code, _, err = await fieldpost(node, "kpis", "--history", "speed")
        assert (code, "[kpi.unknown]" in err) == (3, True)

        _, nodes, _ = await fieldpost(node, "nodes")
        (line,) = nodes.splitlines()[1:]
        assert line.split()[:3] == [node.node_id, "running", "yes"]
        assert json.loads((await fieldpost(node, "nodes", "--json"))[1])["leader"] == node.node_id


async def test_a_history_of_a_time_before_the_first_sample_is_empty(sqlite_url: str, tmp_path: Path) -> None:
    async with RunningCentral(sqlite_url, tmp_path / "data") as node:
        span = ("--from", "2020-01-01T00:00:00Z", "--to", "2020-01-02T00:00:00+00:00")
        assert await fieldpost(node, "kpis", "--history", "stuck", *span) == (0, "No samples in this time range.\n", "")
