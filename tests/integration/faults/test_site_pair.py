"""A pair whose nodes are killed, frozen and cut off: processes in network namespaces, with central and a target."""

import asyncio
from pathlib import Path

import pytest

from fieldpost.site.pair.pair_files import PairFiles
from support.node_process import NodeProcess
from support.pair_storm import run_storm
from support.pair_world import SendingScript, pair_world, send_in_a_loop, wait_copied
from support.running_central import until

pytestmark = pytest.mark.needs("namespaces")

TABLES = ("messages", "copies", "calls", "tracking", "rejected", "keys", "commands")


@pytest.mark.fault(11)
@pytest.mark.req("REP-05", "TOP-01", "DEC-40")
async def test_standby_continues_after_a_kill_and_the_returning_node_follows(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        world.target.is_down = True
        calls = [await world.issue(leader), await world.issue(other)]
        sent = leader.node.send()
        await wait_copied(leader, other)
        await leader.kill()
        took = send_in_a_loop(other.node.path, 20)
        calls.append(await world.issue(leader))
        world.target.is_down = False
        await until(other.executes, 60, "the standby to take over")
        assert (await other.pair())["epoch"] > epoch
        assert max(took) < 5
        delivered = "SELECT count(*) FROM tracking WHERE status = 'delivered'"
        await until(lambda: other.node.rows(delivered) == [(2,)], 60, "the copied calls")
        await leader.start()
        await world.settled(calls)
        assert not await leader.executes()
        assert set(world.target.delivered.values()) == {1}
        assert sent in await world.received()


@pytest.mark.req("DEC-39")
async def test_frozen_leader_executes_nothing_when_it_continues(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        world.target.is_down = True
        calls = [await world.issue(leader) for _ in range(3)]
        await wait_copied(leader)
        leader.freeze()
        await until(other.executes, 60, "the standby to take over")
        world.target.is_down = False
        await until(lambda: len(world.target.delivered) == 3, 60, "all calls")
        leader.thaw()
        await world.settled(calls)
        assert set(world.target.delivered.values()) == {1}
        assert not await leader.executes()


@pytest.mark.fault(13)
@pytest.mark.fault(74)
@pytest.mark.req("DEC-39", "DEC-42")
async def test_one_node_executes_while_the_nodes_are_cut_off_and_none_without_both(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        # Both reach central: it renews the leader's lease and grants no other.
        world.network.cut("pair")
        await until(lambda: _is_lost(other), 60, "the standby to miss the leader")
        assert (await leader.executes(), await other.executes()) == (True, False)
        call = await world.issue(leader)
        # The leader loses central too: the standby gets the next epoch, after the leader has stopped.
        world.network.cut(f"central-{leader.node.node}")  # type: ignore[arg-type]
        await until(other.executes, 60, "the standby to lead")
        assert not await leader.executes()
        # All apart: the lease of the new leader ends, and it assumes that it was cut off.
        world.network.cut(f"central-{other.node.node}")  # type: ignore[arg-type]

        async def none_executes() -> bool:
            return not (await leader.executes() or await other.executes())

        await until(none_executes, 30, "both to stop")
        late = await world.issue(other)
        world.network.heal()
        await world.leader()
        await world.settled([call, late])
        assert set(world.target.delivered.values()) == {1}
        assert (await other.pair())["epoch"] > epoch


async def _is_lost(node: NodeProcess) -> bool:
    age_s = (await node.pair())["peer_age_s"]
    # Long enough to ask central, and to be refused.
    return age_s is not None and age_s >= 8


@pytest.mark.fault(14)
@pytest.mark.req("REP-06", "DEC-42")
@pytest.mark.parametrize("seed", range(3))
async def test_random_kills_freezes_and_cuts_of_a_pair_in_short(tmp_path: Path, seed: int) -> None:
    async with pair_world(tmp_path) as world:
        await run_storm(world, seed, steps=3, step_s=4.0)


@pytest.mark.fault(12)
@pytest.mark.req("REP-06", "DEC-42")
async def test_destroyed_disk_of_the_leader_loses_at_most_the_reported_lag(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        kept = [leader.node.send() for _ in range(3)]
        await until(lambda: world.has_received(kept), 60, "the notifications at central")
        await wait_copied(leader)
        [(copied,)] = leader.node.rows("SELECT max(sequence) FROM messages")
        world.network.cut("pair", f"central-{leader.node.node}")  # type: ignore[arg-type]
        sent = [leader.node.send() for _ in range(4)]
        await until(lambda: _is_at_least(leader, 4), 30, "all four in the lag")
        lag = await _lag(leader)
        await leader.kill()
        for file in leader.node.path.glob("buffer.db*"):
            file.unlink()
        # Before the link is healed: the kernel of a machine that is gone does not send the rest of its connection.
        await until(other.executes, 60, "the standby to lead")
        world.network.heal()
        await leader.start()
        named = f"SELECT 1 FROM events WHERE text LIKE '%notifications up to number {copied} and%'"
        await until(lambda: other.node.rows(named), 60, "the report of the lost numbers")
        assert "granted by central" in (await other.pair())["switch_reason"]
        again = leader.node.send()
        await until(lambda: world.has_received([*kept, again]), 60, "the new disk to work")
        await world.settled([])
        lost = set(sent) - set(await world.received())
        assert lost == set(sent)
        assert len(lost) <= lag


@pytest.mark.fault(9)
@pytest.mark.fault(10)
@pytest.mark.fault(15)
@pytest.mark.req("REP-03", "DEC-40")
async def test_broken_link_and_stopped_standby_delay_no_script_and_change_no_leader(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        scripts = [SendingScript(node.node.path) for node in world.nodes]
        for script in scripts:
            script.start()
        # The link breaks while changes are on the way, every other second.
        calls = []
        for _ in range(4):
            world.network.cut("pair")
            calls.append(await world.issue(leader))
            await until(lambda: _age_is(other, 1, 60), 30, "a second of silence")
            world.network.heal("pair")
            calls.append(await world.issue(other))
            await until(lambda: _age_is(other, 0, 1), 60, "the other node again")
        other.freeze()
        await until(lambda: _is_late(leader), 60, "the lag to be reported")
        assert await leader.executes()
        await scripts[leader.node.node].end()
        assert max(scripts[leader.node.node].took) < 2
        other.thaw()
        # The frozen agent may have held the lock of its buffer: the script on that machine waited for it.
        await scripts[other.node.node].end()
        await world.settled(calls)
        assert (await leader.pair())["epoch"] == epoch
        assert set(world.target.delivered.values()) == {1}
        assert {one for script in scripts for one in script.sent} <= set(await world.received())


@pytest.mark.fault(11)
@pytest.mark.req("API-01", "DEC-40")
async def test_send_never_fails_or_waits_over_a_planned_switch_and_a_kill(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        scripts = [SendingScript(node.node.path) for node in world.nodes]
        for script in scripts:
            script.start()
        shown = await leader.switch("demote", reason="maintenance")
        assert shown["role"] == "standby"
        await until(other.executes, 60, "the other node to lead")
        await other.kill()
        await until(leader.executes, 60, "the first node to lead again")
        for script in scripts:
            await script.end()
        assert min(len(script.took) for script in scripts) > 100
        assert max(max(script.took) for script in scripts) < 2
        await other.start()
        await world.settled([])
        sent = [one for script in scripts for one in script.sent]
        await until(lambda: world.has_received(sent), 60, "all of them")


async def _lag(node: NodeProcess) -> int:
    return int((await node.pair())["lag_changes"])


async def _is_at_least(node: NodeProcess, changes: int) -> bool:
    return await _lag(node) >= changes


async def _age_is(node: NodeProcess, low: float, high: float) -> bool:
    age_s = (await node.pair())["peer_age_s"]
    return age_s is not None and low <= age_s < high


async def _is_late(node: NodeProcess) -> bool:
    return bool((await node.pair())["lag_s"] > 5)


@pytest.mark.threat(21)
@pytest.mark.bad_input(59)
async def test_port_of_a_node_gives_nothing_to_strangers_and_takes_nothing_out_of_order(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        await world.leader()
        first, second = world.nodes
        sent = second.node.send()
        await world.issue(second)
        await until(lambda: world.has_received([sent]), 60, "its notification")
        await world.settled([])
        plain, without_certificate = await world.ask_port(first, "strangers")
        assert "plant-7" not in plain
        assert without_certificate == ""
        await second.kill()
        before = [first.node.rows(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES]
        assert await world.ask_port(first, "messages", second.node.path) == [
            "pair.version",
            "pair.old_epoch",
            "pair.gap",
            "pair.wrong_epoch",
            "acked",
        ]
        assert [first.node.rows(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES] == before
        await second.start()
        call = await world.issue(second)
        await world.settled([call])
        # Neither the code nor a private key is in a log, a row or an answer.
        answers = [await node.state() for node in world.nodes] + [await world.api("GET", "site-health/plant-7")]
        secrets = {world.code.encode(): 0}
        for node in world.nodes:
            secrets[PairFiles(node.node.path).key.read_bytes().splitlines()[1]] = 1
        content = [repr(answers).encode(), *await asyncio.to_thread(_files, tmp_path)]
        assert {one: sum(one in file for file in content) for one in secrets} == secrets, (
            "a key is in its own file only"
        )


def _files(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
