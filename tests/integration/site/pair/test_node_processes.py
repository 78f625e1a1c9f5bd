"""Two agents of a pair as processes, without central: copy, duties, planned switch, refused repairs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from fieldpost import Site
from fieldpost.core.errors import Conflict
from fieldpost.testing import HttpServerThread
from support.commands_of_site import fieldpost_here as fieldpost
from support.disks import PowerDisk, enlarge, fill_up, small_disk
from support.node_process import NodeProcess, definitions
from support.pair_world import SendingScript
from support.running_central import until
from support.site_pair import make_node, make_pair

Pair = tuple[NodeProcess, NodeProcess, HttpServerThread]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    with HttpServerThread() as erp:
        more = definitions(erp.url)
        nodes = make_node(tmp_path / "a", 0, more=more), make_node(tmp_path / "b", 1, more=more)
        await make_pair(*nodes)
        async with NodeProcess(nodes[0]) as first, NodeProcess(nodes[1]) as second:
            await until(lambda: _heard(first))
            yield first, second, erp


async def _heard(node: NodeProcess) -> bool:
    age_s = (await node.pair())["peer_age_s"]
    return age_s is not None and age_s < 5


def call(node: NodeProcess) -> str:
    with Site.open(node.node.path) as site:
        return site.external("erp").call("POST", "/orders", json={"part": "seal"})


@pytest.mark.req("SF-05")
@pytest.mark.req("REP-02")
@pytest.mark.req("DEC-40")
async def test_leader_retries_the_call_of_the_standbys_script_and_both_nodes_have_the_result(pair: Pair) -> None:
    first, second, erp = pair
    await first.switch("promote", is_forced=True, reason="first start")
    erp.on().answer(503).times(3)
    call_id = await asyncio.to_thread(call, second)
    delivered = f"SELECT count(*) FROM tracking WHERE call_id = '{call_id}' AND status = 'delivered'"
    for one in (first, second):
        await until(lambda one=one: one.node.rows(delivered) == [(1,)], what="the result on both nodes")
        assert one.node.rows(f"SELECT count(*) FROM calls WHERE message_id = '{call_id}'") == [(0,)]
    # The agent of the standby made no attempt: only its script's first one is in its log.
    assert second.node.rows(f"SELECT count(*) FROM events WHERE message_id = '{call_id}' AND kind = 'retried'") == [
        (1,)
    ]


@pytest.mark.req("DEC-39")
async def test_planned_switch_hands_over_and_back(pair: Pair) -> None:
    first, second, _ = pair
    await first.switch("promote", is_forced=True, reason="first start")
    sent = first.node.send()
    shown = await first.switch("demote", reason="maintenance")
    assert shown["role"] == "standby"
    assert shown["lag_changes"] == 0
    assert "handed over to node 1: maintenance" in shown["switch_reason"]
    await until(second.executes, what="the other node to lead")
    assert (await second.pair())["epoch"] == 3
    assert sent in [row for (row,) in second.node.rows("SELECT message_id FROM copies")]
    shown = await first.switch("promote")
    assert (shown["role"], shown["epoch"]) == ("leader", 4)
    assert "the other node handed over" in shown["switch_reason"]
    with pytest.raises(Conflict, match="does not lead"):
        await second.switch("demote")


async def test_commands_that_change_the_buffer_refuse_on_the_standby(pair: Pair) -> None:
    first, second, _ = pair
    await first.switch("promote", is_forced=True, reason="first start")
    await until(lambda: second.node.rows("SELECT value FROM facts WHERE name = 'pair_known'") == [(2,)])
    call_id = "0192f0c0-0000-7000-8000-000000000000"
    export = second.node.path / "lines"
    fieldpost("site", "export", export, "--folder", second.node.path)
    for arguments in (
        ("retry", call_id),
        ("discard", call_id),
        ("rejected", "resubmit", call_id),
        ("rejected", "discard", call_id),
        ("import", export),
    ):
        refused = await asyncio.to_thread(fieldpost, "site", *arguments, "--folder", second.node.path)
        assert refused.returncode == 5, (arguments, refused.stderr)
        assert first.node.listen in refused.stderr.decode()
    shown = await asyncio.to_thread(fieldpost, "site", "status", "--folder", second.node.path)
    assert "node 1, standby, epoch 2" in shown.stdout.decode()
    assert first.node.listen in shown.stdout.decode()


async def test_doctor_compares_both_nodes(pair: Pair) -> None:
    first, second, _ = pair
    checks = await _doctor(first)
    assert checks["pair"] == ("ok", "node 0, standby, epoch 1")
    assert checks["differences"][0] == "ok"
    settings = second.node.path / "site.toml"
    settings.write_text(settings.read_text().replace("retries_max = 1000", "retries_max = 7"))
    await second.kill()
    await second.start()
    await until(lambda: _heard(second))
    await until(lambda: _differs(first), what="the greeting of the other node")
    assert (await _doctor(first))["differences"] == ("warning", "the nodes differ in external.erp")
    await second.kill()
    await until(lambda: _is_lost(first), what="the other node to be missed")
    assert (await _doctor(first))["other node"][0] == "failing"


async def _doctor(node: NodeProcess) -> dict[str, tuple[str, str]]:
    shown = await asyncio.to_thread(fieldpost, "site", "doctor", "--quick", "--json", "--folder", node.node.path)
    return {one["name"]: (one["status"], one["detail"]) for one in json.loads(shown.stdout)["checks"]}


async def _differs(node: NodeProcess) -> bool:
    return bool((await node.pair())["differences"])


async def _is_lost(node: NodeProcess) -> bool:
    return (await node.pair())["peer_age_s"] >= 5


@pytest.mark.req("REP-04", "DEC-28")
async def test_rows_are_compared_on_demand_and_copied_again(pair: Pair) -> None:
    first, second, _ = pair
    await first.switch("promote", is_forced=True, reason="first start")
    sent = first.node.send()
    await until(lambda: _copies(second) == {sent}, what="the copy")
    await until(lambda: _executes_alone(first, second), what="the epoch on both nodes")
    with second.node.opened() as buffer:
        buffer.write(lambda cursor: cursor.execute("UPDATE copies SET payload = 'x'").fetchall())
    for node, compared, repaired in ((first, 5, 1), (first, 5, 0), (second, 1, 0)):
        done = await asyncio.to_thread(fieldpost, "site", "pair", "compare", "--json", "--folder", node.node.path)
        assert json.loads(done.stdout) == {"compared": compared, "repaired": repaired, "skipped": 0}, done.stderr
    assert second.node.rows("SELECT 1 FROM copies WHERE payload = 'x'") == []
    repaired_text = "1 ranges of rows differed from the other node's and were copied again"
    await until(lambda: first.node.rows("SELECT text FROM events WHERE kind = 'pair_repaired'") == [(repaired_text,)])


async def _executes_alone(first: NodeProcess, second: NodeProcess) -> bool:
    return await first.executes() and (await second.pair())["epoch"] == 2


@pytest.mark.req("REP-04")
async def test_salvaged_node_takes_a_fresh_copy_and_hands_over_rows_that_only_it_had(pair: Pair) -> None:
    first, second, _ = pair
    await first.switch("promote", is_forced=True, reason="first start")
    sent = [first.node.send() for _ in range(3)]
    assert await second.stop() == 0
    own = second.node.send()
    salvaged = await asyncio.to_thread(fieldpost, "site", "salvage", "--folder", second.node.path)
    assert salvaged.returncode == 0, salvaged.stderr
    await second.start()
    await until(lambda: _copies(first) == {own}, what="the row that only the salvaged node had")
    await until(lambda: _copies(second) == set(sent), what="a fresh copy")
    assert (await first.pair())["role"] == "leader"


@pytest.mark.fault(12)
@pytest.mark.req("REP-06")
@pytest.mark.req("DEC-42")
async def test_destroyed_disk_loses_at_most_the_lag_and_the_other_node_names_it(pair: Pair) -> None:
    first, second, _ = pair
    sent = second.node.send()
    await until(lambda: _copies(first) == {sent}, what="the copy")
    await first.stop()
    lost = second.node.send()
    assert second.node.lag() == 1
    await second.kill()
    for file in second.node.path.glob("buffer.db*"):
        file.unlink()
    await first.start()
    await second.start()
    await until(lambda: _named(first), what="the report of the lost numbers")
    # Taken over from the copy; the change within the lag is lost with its disk.
    own = {row for (row,) in first.node.rows("SELECT message_id FROM messages WHERE message_id <> ''")}
    assert own == {sent}
    assert lost not in own | _copies(first)


@pytest.mark.needs("mount")
async def test_full_disk_of_the_standby_stops_its_copy_and_no_script(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        nodes = make_node(tmp_path / "a", 0), make_node(disk / "b", 1)
        await make_pair(*nodes)
        async with NodeProcess(nodes[0]) as first, NodeProcess(nodes[1]) as second:
            await until(lambda: _heard(first))
            await first.switch("promote", is_forced=True, reason="first start")
            fill_up(disk)
            with Site.open(first.node.path) as site:
                sent = {site.notify.to("operators").send("Pump stopped", "x" * 50_000) for _ in range(200)}
            await until(lambda: _is_late(first), 60, "the lag to be reported")
            assert await first.executes()
            assert await _heard(first), "the nodes hear each other"
            assert (await second.pair())["role"] == "standby"
            (disk / "filler").unlink()
            enlarge(disk, 64)
            await until(lambda: _copies(second) == sent, 60, "the copy to continue")


@pytest.mark.needs("mount")
async def test_disk_of_the_standby_that_turns_read_only_stops_its_copy_and_no_script(tmp_path: Path) -> None:
    with PowerDisk(tmp_path) as disk:
        nodes = make_node(tmp_path / "a", 0), make_node(disk.path / "b", 1)
        await make_pair(*nodes)
        async with NodeProcess(nodes[0]) as first, NodeProcess(nodes[1]) as second:
            await until(lambda: _heard(first))
            await first.switch("promote", is_forced=True, reason="first start")
            sent = {first.node.send()}
            await until(lambda: _copies(second) == sent, what="the copy")
            disk.fail()
            script = SendingScript(first.node.path, 50)
            script.start()
            await until(lambda: _is_late(first), 60, "the lag to be reported")
            assert await first.executes()
            await script.end()
            assert len(script.took) == 50
            assert max(script.took) < 2
            await second.kill()
            disk.repair()
            await second.start()
            await until(lambda: _copies(second) == sent | set(script.sent), 60, "the copy to continue")


STEP_2 = """
ALTER TABLE messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;
ALTER TABLE calls ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;
"""
NEXT_VERSION = (
    "import fieldpost; fieldpost.__version__ = '99.0'; from pathlib import Path; "
    "from fieldpost.site.buffer.schema import STEPS; STEPS.append(Path({step!r})); "
)
"""A made-up next version, with another layout of the buffer."""


@pytest.mark.fault(58)
async def test_standby_of_the_next_version_and_then_the_leader_lose_nothing(pair: Pair, tmp_path: Path) -> None:
    first, second, erp = pair
    step = tmp_path / "step_2.sql"
    step.write_text(STEP_2)
    newer = NEXT_VERSION.format(step=str(step))
    await first.switch("promote", is_forced=True, reason="first start")
    # Scripts of the former version, which run during the upgrade.
    scripts = [SendingScript(node.node.path) for node in (first, second)]
    for script in scripts:
        script.start()
    erp.on().answer(503).times(6)
    calls = {await asyncio.to_thread(call, node) for node in (first, second)}
    assert await second.stop() == 0
    await second.start(newer)
    await until(lambda: _peer_version(first, "99.0"), what="the nodes to work side by side")
    assert (await first.pair())["differences"] == ["version"]
    calls.add(await asyncio.to_thread(call, first))
    await first.switch("demote", reason="upgrade")
    await until(second.executes, what="the upgraded node to lead")
    assert await first.stop() == 0
    await first.start(newer)
    await until(lambda: _peer_version(second, "99.0"), what="the second upgrade")
    for script in scripts:
        await script.end()
    delivered = "SELECT call_id FROM tracking WHERE status = 'delivered'"
    for one, other, script in ((first, second, scripts[0]), (second, first, scripts[1])):
        await until(lambda one=one: set(_read(one, delivered)) == calls, what="the results on both nodes")
        sent = _read(one, "SELECT message_id FROM messages WHERE message_id <> ''")
        assert set(sent) == set(script.sent)
        await until(lambda other=other, sent=sent: _read(other, "SELECT message_id FROM copies") == sent)
    assert len(scripts[0].sent) > 100
    assert len(erp.requests) == 6 + len(calls), "each is accepted once"


def _read(node: NodeProcess, statement: str) -> list[str]:
    """One column of a buffer of any layout, which opening it as a buffer would upgrade or refuse."""
    with closing(apsw.Connection(str(node.node.folder.buffer_path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return sorted(row_id for (row_id,) in connection.execute(statement).fetchall())


async def _peer_version(node: NodeProcess, version: str) -> bool:
    shown = await node.pair()
    return bool(shown["peer_version"] == version and shown["peer_age_s"] is not None and shown["peer_age_s"] < 2)


async def _is_late(node: NodeProcess) -> bool:
    return bool((await node.pair())["lag_s"] > 5)


def _named(node: NodeProcess) -> bool:
    return bool(node.node.rows("SELECT text FROM events WHERE text LIKE '%notifications up to number%'"))


def _copies(node: NodeProcess) -> set[object]:
    return {row for (row,) in node.node.rows("SELECT message_id FROM copies")}


@pytest.mark.parametrize("leaving", [0, 1])
async def test_other_node_leaves_and_the_running_agent_is_a_single_site(pair: Pair, leaving: int) -> None:
    first, second, erp = (*pair[:2][:: 1 if leaving else -1], pair[2])
    erp.on().answer(503).times(1)
    call_id = await asyncio.to_thread(call, second)
    assert await second.stop() == 0
    left = await asyncio.to_thread(fieldpost, "site", "pair", "leave", "--folder", second.node.path)
    assert left.returncode == 0, left.stderr
    await until(lambda: first.node.rows(f"SELECT status FROM tracking WHERE call_id = '{call_id}'") == [("delivered",)])
    state = await first.state()
    assert state is not None
    assert state["pair"] is None
    again = await asyncio.to_thread(fieldpost, "site", "pair", "leave", "--folder", second.node.path)
    assert again.returncode == 5
