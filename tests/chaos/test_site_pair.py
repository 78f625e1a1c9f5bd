"""A pair under seeded storms of faults, flapping links, its policies without central, and a week without it."""

import asyncio
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from fieldpost.testing import MailServer
from support.node_process import NodeProcess
from support.pair_storm import NAMED, run_storm
from support.pair_world import PairWorld, pair_world, send_in_a_loop, wait_copied
from support.running_central import clock_ahead_by, clock_off_by, until
from support.site_pair import SITE

pytestmark = pytest.mark.needs("namespaces")

DAY_S = 24 * 3600.0
PARKING = '\n[external.crm]\nurl = "http://127.0.0.1:9"\ntimeout_s = 5\nretry_interval_s = 0.2\nretries_max = 1\n'
DUPLICATES = "SELECT message_id FROM events WHERE kind = 'duplicate'"


@pytest.mark.fault(11)
@pytest.mark.fault(14)
@pytest.mark.fault(74)
@pytest.mark.req("REP-06", "DEC-42")
@pytest.mark.timeout(540)
@pytest.mark.parametrize("seed", range(50))
async def test_random_kills_freezes_and_cuts_of_a_pair(tmp_path: Path, seed: int) -> None:
    async with pair_world(tmp_path) as world:
        await run_storm(world, seed, steps=6, step_s=8.0)


@pytest.mark.timeout(300)
@pytest.mark.fault(9)
@pytest.mark.fault(15)
@pytest.mark.req("REP-03", "DEC-40")
async def test_flapping_link_lost_uplink_and_stopped_standby_change_no_leader(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        for _ in range(3):
            world.network.cut("pair")
            await until(lambda: _age_is(other, 2, 60), 30, "two seconds of silence")
            world.network.heal("pair")
            await until(lambda: _age_is(other, 0, 2), 60, "the other node again")
        assert (await leader.pair())["epoch"] == epoch
        # The standby renews the lease of a leader without an uplink; longer than one lease.
        world.network.cut(f"central-{leader.node.node}")  # type: ignore[arg-type]
        clock = SystemClock()
        until_at = clock.monotonic() + 14
        while clock.monotonic() < until_at:
            shown = await leader.pair()
            assert (shown["role"], shown["epoch"], shown["grounds"]) == ("leader", epoch, "lease")
        world.network.heal()
        other.freeze()
        took = await asyncio.to_thread(send_in_a_loop, leader.node.path, 50)
        assert max(took) < 5
        await until(lambda: _is_late(leader), 60, "the lag to be reported")
        assert await leader.executes()
        other.thaw()
        await wait_copied(leader)
        assert (await leader.pair())["epoch"] == epoch


@pytest.mark.timeout(300)
@pytest.mark.fault(74)
@pytest.mark.req("DEC-39", "DEC-42")
@pytest.mark.parametrize("policy", ["availability", "consistency"])
async def test_both_nodes_alone_act_by_their_policy(tmp_path: Path, policy: str) -> None:
    async with pair_world(tmp_path, more=f'\n[pair]\npolicy = "{policy}"\n') as world:
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        world.network.cut("central-0", "central-1")
        await until(lambda: _grounds_are(leader, "peer"), 60, "the lease to end")
        await _continues_without_central(leader)
        world.target.is_down = True
        both = await world.issue(leader)
        await wait_copied(leader)
        world.network.cut("pair")
        if policy == "availability":
            await until(other.executes, 60, "the standby to take the next epoch")
            assert (await other.pair())["epoch"] > epoch
        else:
            await until(lambda: _age_is(other, 25, 200), 60, "a long silence")
            assert not await other.executes(), "it waits for a person"
        assert await leader.executes(), "the leader continues alone"
        world.target.is_down = False
        executed = 2 if policy == "availability" else 1
        await until(lambda: world.target.delivered[both] == executed, 60, "the call to be executed")
        sent = [node.node.send() for node in world.nodes]
        world.network.heal()
        await world.leader()
        await world.settled([both])
        await until(lambda: world.has_received(sent), 60, "the notifications of both")
        # After the heal, the standby may lead before it hears that the call has ended.
        assert executed <= world.target.delivered[both] <= 2
        named = {row for node in world.nodes for (row,) in node.node.rows(DUPLICATES)}
        assert named == {one for one, count in world.target.delivered.items() if count > 1}


@pytest.mark.timeout(300)
@pytest.mark.fault(74)
@pytest.mark.req("DEC-39", "DEC-42")
@pytest.mark.parametrize("policy", ["availability", "consistency"])
async def test_node_cut_off_from_both_continues_after_ten_minutes_by_its_policy(tmp_path: Path, policy: str) -> None:
    async with pair_world(tmp_path, more=f'\n[pair]\npolicy = "{policy}"\n') as world:
        ahead = tmp_path / "ahead"
        ahead.write_text("0")
        for node in world.nodes:
            await node.kill()
            await node.start(clock_ahead_by(ahead))
        leader = await world.leader()
        other = world.other(leader)
        epoch = (await leader.pair())["epoch"]
        await wait_copied(*world.nodes)
        world.network.cut("pair", "central-0", "central-1")

        async def none_executes() -> bool:
            return not (await leader.executes() or await other.executes())

        await until(none_executes, 60, "both to stop")
        world.target.is_down = True
        late = await world.issue(leader)
        world.target.is_down = False
        ahead.write_text("570")
        for _ in range(20):
            assert await none_executes(), "it is not ten minutes yet"
        assert world.target.attempts[late] == 1
        ahead.write_text("700")
        if policy == "availability":
            await until(leader.executes, 30, "the leader to continue")
            await until(other.executes, 30, "the standby to take the next epoch")
            await until(lambda: world.target.delivered[late] == 1, 30, "the call to be executed")
        else:
            for _ in range(20):
                assert await none_executes(), "it waits for a person"
        world.network.heal()
        await world.leader()
        await world.settled([late])
        assert world.target.delivered[late] == 1
        switches = (await world.api("GET", f"site-health/{SITE}"))["switches"]
        causes = {one["cause"] for one in switches if one["epoch"] > epoch}
        assert ("cut_off" in causes) == (policy == "availability")


@pytest.mark.timeout(300)
@pytest.mark.req("DEC-39", "DEC-42")
async def test_late_result_of_a_frozen_leader_changes_nothing_and_is_named(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        leader = await world.leader()
        other = world.other(leader)
        world.target.is_down = True
        call = await world.issue(leader)
        await wait_copied(leader)
        world.target.delay_s, world.target.is_down = 4.0, False
        await until(lambda: world.target.delivered[call] == 1, 60, "the attempt to be in flight")
        leader.freeze()
        world.target.delay_s = 0.0
        await until(lambda: world.target.delivered[call] == 2, 90, "the other node, once the claim has expired")
        row = f"SELECT status, version FROM tracking WHERE call_id = '{call}' AND status = 'delivered'"
        [(_, version)] = await until(lambda: other.node.rows(row), 30, "its result")
        leader.thaw()
        await world.settled([call])
        assert world.target.delivered[call] == 2
        [(_, kept)] = other.node.rows(row)
        assert kept >= version
        assert (call,) in [one for node in world.nodes for one in node.node.rows(NAMED)]


@pytest.mark.timeout(540)
@pytest.mark.req("DEC-38", "DEC-39", "DEC-41")
async def test_week_without_central_with_three_failovers_loses_nothing(tmp_path: Path, mail: MailServer) -> None:
    async with pair_world(tmp_path, more=PARKING) as world:
        smtp = {"host": mail.host, "port": mail.port, "tls": "none", "from_address": "alerts@plant.example"}
        await world.api("POST", "channels", {"name": "mail", "type": "email", "settings": smtp, "is_default": True})
        await world.api("POST", "lists", {"name": "operators", "targets": ["operators@plant.example"]})
        leader = await world.leader()
        parked = await world.issue(leader, system="crm")
        await until(lambda: _mirrored(world, parked, "parked"), 60, "the parked call at central")
        await wait_copied(*world.nodes)
        sent: list[str] = []
        calls: list[str] = []
        world.network.cut("central-0", "central-1")
        body = {"site": SITE, "kind": "discard", "message_ids": [parked]}
        [given] = (await world.api("POST", "intents", body))["intents"]
        await until(lambda: _grounds_are(leader, "peer"), 60, "the lease to end")
        for number in range(3):
            other = world.other(leader)
            for node in (leader, other):
                sent.append(node.node.send())
                calls.append(await world.issue(node))
            await wait_copied(leader, other)
            await _continues_without_central(leader)
            await leader.kill()
            await until(other.executes, 60, "the other node to lead")
            sent.append(leader.node.send())
            # Two days later by the clock of this machine.
            await leader.start(clock_off_by((number + 1) * 2 * DAY_S))
            await until(lambda node=leader: _age_is(node, 0, 2), 60, "the returning node to hear the other one")
            leader = other
        for node in (world.other(leader), leader):
            await node.kill()
            await node.start(clock_off_by(7 * DAY_S))
            sent.append(node.node.send())
        world.network.heal()
        await world.leader()
        await world.settled(calls)

        async def are_delivered() -> bool:
            received = await world.received()
            assert "parked" not in received.values()
            return {received.get(one) for one in sent} == {"delivered"}

        await until(are_delivered, 120, "all notifications, one row each")

        async def is_applied() -> bool:
            found = await world.api("GET", f"intents/{given['intent_id']}")
            return (found["state"], found["outcome"]) == ("done", "applied")

        await until(is_applied, 120, "the command")
        discarded = f"SELECT 1 FROM events WHERE message_id = '{parked}' AND kind = 'discarded'"
        assert sum(len(node.node.rows(discarded)) for node in world.nodes) == 1, "applied once"
        assert set(world.target.delivered.values()) == {1}


@pytest.mark.timeout(400)
@pytest.mark.fault(73)
@pytest.mark.req("DEC-41")
async def test_node_that_returns_after_eight_days_hands_over_the_rest_only(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world:
        former = await world.leader()
        leader = world.other(former)
        world.target.is_down = True
        finished = await world.issue(former)
        await wait_copied(former)
        world.network.cut("pair", f"central-{former.node.node}")  # type: ignore[arg-type]
        rest = await world.issue(former)
        sent = former.node.send()
        await former.kill()
        world.target.is_down = False
        await until(leader.executes, 60, "the other node to lead")
        await until(lambda: world.target.delivered[finished] == 1, 60, "the copied call")
        await until(lambda: leader.node.rows("SELECT 1 FROM tracking WHERE status = 'delivered'"), 30, "its record")
        # Eight days later the record is past its retention.
        await leader.kill()
        await leader.start(clock_off_by(8 * DAY_S))
        await until(lambda: leader.node.rows("SELECT count(*) FROM tracking") == [(0,)], 120, "the purge")
        assert former.node.rows(f"SELECT count(*) FROM calls WHERE message_id = '{finished}'") == [(1,)]
        world.network.heal()
        await former.start(clock_off_by(8 * DAY_S))
        await until(lambda: world.target.delivered[rest] == 1, 60, "the rest to be handed over and executed")
        for node in world.nodes:
            await until(lambda node=node: node.node.rows("SELECT message_id FROM calls") == [], 60, "the end of calls")
            assert node.node.rows("SELECT call_id FROM tracking") == [(rest,)]
        await until(lambda: world.has_received([sent]), 60, "its notification")
        assert world.target.delivered[finished] == 1
        assert not world.differing()


async def _continues_without_central(leader: NodeProcess) -> None:
    """For longer than a lease: only then the other node knows that the pair was already without central."""
    clock = SystemClock()
    until_at = clock.monotonic() + 13
    while clock.monotonic() < until_at:
        assert await leader.executes(), "the pair continues without central"


async def _mirrored(world: PairWorld, call_id: str, status: str) -> bool:
    return (await world.mirror()).get(call_id) == status


async def _grounds_are(node: NodeProcess, grounds: str) -> bool:
    return bool((await node.pair())["grounds"] == grounds)


async def _age_is(node: NodeProcess, low: float, high: float) -> bool:
    age_s = (await node.pair())["peer_age_s"]
    return age_s is not None and low <= age_s < high


async def _is_late(node: NodeProcess) -> bool:
    return bool((await node.pair())["lag_s"] > 5)
