"""Two nodes of one site at central: commands and reconciliation go to the leader, health is kept per node, and the
mirror follows from one leader to the next."""

import re
from typing import Any

import pytest

from fieldpost.central.commands.sender import REFUSED_S
from fieldpost.central.store.sites import cached_calls, health, intents, mirrors
from fieldpost.core.pair.numbering import first_number
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.sites.health import Freshness
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.core.times import to_text
from fieldpost.link.messages import (
    STANDBY,
    CallRow,
    Command,
    CommandResult,
    Health,
    PairHealth,
    Reconcile,
    ReconcileAnswer,
    Refusal,
    Telemetry,
    TelemetryAck,
)
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import OPERATOR, Front, served
from support.pair_links import LinkNode, Way, link_node, pair_tokens
from support.visitor import visiting

pytestmark = [pytest.mark.req("DEC-38")]

INCARNATION = "a" * 32
CALL = "019b7892-1c00-7000-8000-00000000000a"


async def sweep(front: Front) -> None:
    await front.commands.sweep()
    await front.commands.settled()


async def intent(front: Front, intent_id: str) -> Intent:
    found = await front.centre.store.read(intents.get, intent_id)
    assert found is not None
    return found


async def mirror(front: Front) -> Mirror:
    found = await front.centre.store.read(mirrors.load, SITE)
    assert found is not None
    return found


async def status(front: Front) -> str:
    """The status of the call in the mirror."""
    found = await front.centre.store.read(cached_calls.get, SITE, CALL)
    assert found is not None
    return found.report.status.value


def row(front: Front, status: str, version: int) -> CallRow:
    now = to_text(front.clock.now())
    return CallRow(
        call_id=CALL,
        category="external_call",
        target="erp",
        status=status,
        retry_count=1,
        created_at=now,
        updated_at=now,
        version=version,
    )


def told(front: Front, after: int, until: int, *rows: CallRow) -> Telemetry:
    return Telemetry(incarnation=INCARNATION, after=after, until=until, sent_at=to_text(front.clock.now()), rows=rows)


async def health_of(front: Front) -> dict[str, Any]:
    async with front.client("viewer") as client:
        answer = await client.get(f"/api/v1/site-health/{SITE}")
    found: dict[str, Any] = answer.json()["site"]
    return found


@pytest.mark.req("TEL-06", "TEL-09")
@pytest.mark.parametrize("way", ["websocket", "post"])
async def test_commands_go_to_the_leader_and_unanswered_ones_to_its_successor(
    front: Front, clock: ManualClock, way: Way
) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first, way) as one, link_node(url, second, way) as two:
        await one.ask(known=1)
        [given] = await front.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_PARKED)
        await sweep(front)
        command = await one.receive(Command)
        assert (command.intent_id, command.kind) == (given.intent_id, "list_parked")
        await one.receive(Reconcile)
        clock.advance(10)
        await two.ask(known=2)
        await sweep(front)
        assert await two.receive(Command) == command, "the former leader has not answered"
        await two.receive(Reconcile)
        await sweep(front)
        await two.send(CommandResult(command.intent_id, "applied", rows=({"call_id": CALL},)))
        await two.renew(3)
        settled = await intent(front, command.intent_id)
        assert (settled.state.value, settled.attempts) == ("done", 2)
        # The answer of the former leader comes late and changes nothing.
        await one.send(CommandResult(command.intent_id, "operation_failed"))
        await one.renew(2)
        assert await intent(front, command.intent_id) == settled
        assert not [message for node in (one, two) for message in node.heard if isinstance(message, Command)]


async def test_node_that_refuses_as_a_standby_is_asked_again_soon(front: Front, clock: ManualClock) -> None:
    """The answer that makes a node the leader may come after the first command for the leader."""
    first, _ = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one:
        await one.ask(known=1)
        [given] = await front.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_PARKED)
        await sweep(front)
        await one.receive(Command)
        await one.receive(Reconcile)
        for _ in range(2):
            await one.send(Refusal(STANDBY, "this node of the pair does not lead"))
        await one.renew(2)
        await sweep(front)
        await one.renew(2)
        assert not one.heard, "not at once, or they would refuse each other without end"
        clock.advance(REFUSED_S)
        await sweep(front)
        assert (await one.receive(Command)).intent_id == given.intent_id
        await one.receive(Reconcile)


async def test_commands_wait_while_the_leader_is_not_connected(front: Front) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, second) as two:
        async with link_node(url, first) as one:
            await one.ask(known=1)
        [given] = await front.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_PARKED)
        await sweep(front)
        assert (await intent(front, given.intent_id)).state.value == "waiting"
        async with link_node(url, first) as one:
            await sweep(front)
            assert (await one.receive(Command)).intent_id == given.intent_id
        await two.renew(2)
        assert not [message for message in two.heard if isinstance(message, Command | Reconcile)]


@pytest.mark.req("DEC-41", "TEL-03")
async def test_mirror_continues_across_a_failover_and_reads_nothing_again(front: Front, clock: ManualClock) -> None:
    first, second = await pair_tokens(front)
    begin, later = first_number(2), first_number(3)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        await one.send(told(front, 0, begin + 7, row(front, "retrying", begin + 6)))
        assert (await one.receive(TelemetryAck)).until == begin + 7
        clock.advance(10)
        await two.ask(known=2)
        # The former leader does not know it yet: its reports and answers are refused.
        await one.send(told(front, begin + 7, begin + 9, row(front, "parked", begin + 9)))
        refused = await one.receive((Refusal, TelemetryAck))
        assert isinstance(refused, Refusal)
        assert refused.code == "epoch.not_leading"
        await one.send(
            ReconcileAnswer(incarnation=INCARNATION, after=begin + 7, until=begin + 7, high=begin, sent_at="", rows=())
        )
        # The new leader has a lower version of the former leader's last change, and says how the call ended.
        await two.send(told(front, begin + 5, later + 1, row(front, "delivered", later + 1)))
        assert (await two.receive(TelemetryAck)).until == later + 1
        await one.renew(2)
    assert await status(front) == "delivered"
    found = await mirror(front)
    assert (found.cursor, found.round, found.replaced_count, found.is_rereading) == (later + 1, 1, 0, False)


@pytest.mark.req("DEC-41")
async def test_new_disk_of_the_leader_is_read_again(front: Front) -> None:
    first, _ = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one:
        await one.ask(known=1)
        await one.send(told(front, 0, 7, row(front, "retrying", 6)))
        await one.receive(TelemetryAck)
        other = Telemetry(incarnation="b" * 32, after=0, until=2, sent_at=to_text(front.clock.now()), rows=())
        await one.send(other)
        await one.receive(TelemetryAck)
    assert (await mirror(front)).replaced_count == 1


async def report(node: LinkNode, front: Front, number: int, *, parked: int, is_stopping: bool = False) -> None:
    pair = PairHealth(node=number, held=number, known=2, is_leading=number == 0)
    sent_at = to_text(front.clock.now())
    await node.send(Health(sent_at=sent_at, version="1", backlog={}, parked=parked, is_stopping=is_stopping, pair=pair))
    await node.give_back(number)  # not held: it is answered after the report and changes nothing


async def test_health_is_kept_per_node_and_the_figures_are_the_leaders(front: Front, clock: ManualClock) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        await report(one, front, 0, parked=5)
        await report(two, front, 1, parked=3)
        found = await health_of(front)
        assert (found["parked"], found["link"]) == (5, "online")
        assert [(node["node"], node["role"], node["parked"]) for node in found["nodes"]] == [
            (0, "leader", 5),
            (1, "standby", 3),
        ]
        clock.advance(61)
        await report(two, front, 1, parked=4)
        found = await health_of(front)
        assert (found["parked"], found["link"], found["condition"]) == (5, "online", "online"), "either node suffices"
        assert [node["link"] for node in found["nodes"]] == ["offline", "online"]
        await two.ask(known=2)
        assert (await health_of(front))["parked"] == 4, "the new leader's, from its last report"
        await report(one, front, 0, parked=6)
        assert (await health_of(front))["parked"] == 4
        await report(two, front, 1, parked=4, is_stopping=True)
        assert (await health_of(front))["condition"] == "online"
        await report(one, front, 0, parked=6, is_stopping=True)
        assert (await health_of(front))["condition"] == "stopped"


@pytest.mark.threat(1)
async def test_node_cannot_report_the_health_of_the_other(front: Front) -> None:
    _, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, second) as two:
        pair = PairHealth(node=0, held=0, known=2, is_leading=True)
        await two.send(Health(sent_at="", version="1", backlog={}, pair=pair))
        assert (await two.receive(Refusal)).code == "health.node"
    assert (await health_of(front))["reported_at"] is None


@pytest.mark.req("DEC-39")
async def test_page_metrics_and_health_show_both_nodes_and_their_switches(front: Front, clock: ManualClock) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        await report(one, front, 0, parked=0)
        clock.advance(120)
        await two.taken(3, "silence")
        pair = PairHealth(
            node=1,
            held=3,
            known=3,
            is_leading=True,
            grounds="lease",
            peer_age_s=120.0,
            lag_changes=40,
            lag_s=61.0,
            differences=("external.erp",),
        )
        await two.send(Health(sent_at=to_text(clock.now()), version="1.2.3", backlog={}, pair=pair))
        await two.renew(3)
    await front.centre.store.write(health.sample, clock.now(), Freshness(), now=clock.now())
    clock.advance(20)
    async with visiting(front, "viewer") as visitor:
        page = await visitor.look(f"/sites/{SITE}")
    shown = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    for words in (
        "Node 0 ○ standby ■ offline 0",
        "Node 1 ● leader ✓ online 1 min, 40 changes",
        "The nodes differ in external.erp .",
        "Node 1 3 taken without central: the leader was silent",
        "Node 0 2 granted by central",
        "Lag of the standby, in seconds",
    ):
        assert words in shown, shown
    async with front.client("viewer") as client:
        issues = (await client.get("/api/v1/health")).json()["issues"]
        history = (await client.get(f"/api/v1/site-health/{SITE}/history")).json()["points"]
        detail = (await client.get(f"/api/v1/site-health/{SITE}")).json()
    assert {"site.standby", "site.lag", "site.epoch_taken", "site.definitions"} <= {one["code"] for one in issues}
    assert (history[-1]["lag_s"], history[-1]["lag_changes"]) == (61.0, 40)
    assert [(one["epoch"], one["node"], one["cause"]) for one in detail["switches"]] == [
        (3, 1, "silence"),
        (2, 0, "granted"),
    ]
    metrics = await front.watch.exposition.text()
    for line in (
        f'fieldpost_site_node_leads{{node="1",site="{SITE}"}} 1.0',
        f'fieldpost_site_node_link_state{{node="0",site="{SITE}",state="offline"}} 1.0',
        f'fieldpost_site_epoch{{site="{SITE}"}} 3.0',
        f'fieldpost_site_pair_lag_seconds{{site="{SITE}"}} 61.0',
        f'fieldpost_site_pair_lag_changes{{site="{SITE}"}} 40.0',
    ):
        assert line in metrics
