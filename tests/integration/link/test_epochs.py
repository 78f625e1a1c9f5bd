"""Epoch leases over the link: two nodes of one site with their own tokens, on one or two nodes of central."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.sites import epochs, switches
from fieldpost.core.pair.epoch_lease import EpochLease
from fieldpost.core.pair.numbering import EPOCH_MAX
from fieldpost.core.pair.switch import EpochSwitch
from fieldpost.front.app import create_app
from fieldpost.link.messages import EpochAnswer, Refusal
from fieldpost.run.central import open_store
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN, Front, served
from support.pair_links import SENT_AT, Way, link_node, pair_tokens

pytestmark = [pytest.mark.req("DEC-38", "DEC-39", "DEC-87")]

BOTH_WAYS = pytest.mark.parametrize("way", ["websocket", "post"])


@asynccontextmanager
async def second_central(front: Front, store_url: str) -> AsyncIterator[str]:
    """A second central node over the same database; embedded central has one store, shared by both."""
    is_shared = store_url.startswith("sqlite")
    store = front.centre.store if is_shared else open_store(store_url, front.clock)
    try:
        ingest = Ingest(store, front.clock)
        sender = CommandSender(store, ingest.mirrors, 300, front.clock)
        async with served(create_app(front.operate, front.watch, ingest, sender)) as url:
            yield url
    finally:
        if not is_shared:
            await store.close()


async def lease(front: Front) -> EpochLease:
    found = await front.centre.store.read(epochs.get, SITE)
    assert found is not None
    return found


async def history(front: Front) -> list[EpochSwitch]:
    return await front.centre.store.read(switches.newest, SITE, 10)


async def audited(front: Front) -> list[dict[str, Any]]:
    async with front.client("viewer") as client:
        answer = await client.get("/api/v1/audit", params={"target": SITE})
    assert answer.status_code == 200, answer.text
    return [one["extra"] for one in answer.json()["entries"] if one["request_summary"] == "site.lead"]


@BOTH_WAYS
async def test_standby_gets_the_next_epoch_of_its_parity_after_the_lease(
    front: Front, clock: ManualClock, way: Way
) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first, way) as one, link_node(url, second, way) as two:
        assert await one.ask(known=1) == EpochAnswer(1, 2, is_granted=True)
        clock.advance(9)
        assert await two.ask(known=2) == EpochAnswer(1, 2, is_granted=False)
        assert await one.renew(2) == EpochAnswer(2, 2, is_granted=True)
        clock.advance(9)
        assert await two.renew(2) == EpochAnswer(2, 2, is_granted=True), "the other node renews for the leader"
        clock.advance(9)
        assert await two.ask(known=2) == EpochAnswer(3, 2, is_granted=False)
        clock.advance(1)
        assert await two.ask(known=2) == EpochAnswer(4, 3, is_granted=True)
        assert await one.renew(2) == EpochAnswer(3, 3, is_granted=False), "the former leader hears of the higher epoch"
        assert [switch.epoch for switch in await history(front)] == [3, 2]


@BOTH_WAYS
async def test_released_epoch_is_granted_at_once(front: Front, way: Way) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first, way) as one, link_node(url, second, way) as two:
        await one.ask(known=1)
        assert await one.give_back(2) == EpochAnswer(2, 2, is_granted=True)
        assert await two.ask(known=2) == EpochAnswer(1, 3, is_granted=True)


@pytest.mark.threat(1)
async def test_token_of_a_node_cannot_speak_for_the_other(front: Front) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        assert one.hello is not None
        assert two.hello is not None
        assert (one.hello.node, two.hello.node) == (0, 1)
        await one.ask(known=1)
        for refused in (await two.give_back(2), await two.taken(4), await two.taken(4, "forced", "mine")):
            assert isinstance(refused, Refusal)
            assert refused.code == "epoch.other_node"
        assert await two.ask(known=2) == EpochAnswer(4, 2, is_granted=False)
        assert (await lease(front)).epoch == 2
        await front.operate.sites.remove_node(ADMIN, SITE, 0)
        assert await two.renew(2) == EpochAnswer(5, 2, is_granted=False), "a removed node keeps no lease"


@pytest.mark.bad_input(59)
async def test_epochs_out_of_range_are_refused(front: Front) -> None:
    first, _ = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one:
        for refused in (await one.ask(EPOCH_MAX), await one.renew(EPOCH_MAX + 1), await one.renew(0)):
            assert isinstance(refused, Refusal)
            assert refused.code == "epoch.range"
        await one.ask(known=3)
        assert await one.renew(2) == EpochAnswer(5, 4, is_granted=False), "an old epoch"


async def test_epoch_taken_without_central_is_adopted_and_audited_as_such(front: Front, clock: ManualClock) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        assert await two.taken(5) == EpochAnswer(1, 2, is_granted=False), "the lease of the other node is valid"
        clock.advance(10)
        assert await two.renew(5) == EpochAnswer(2, 5, is_granted=True)
        assert await two.taken(5) == EpochAnswer(3, 5, is_granted=True), "the answer was lost"
        # A node that was away longer reports an epoch of which central has higher ones.
        assert await one.taken(4, "cut_off") == EpochAnswer(2, 5, is_granted=False)
    assert (await lease(front)).is_taken
    assert [(one.epoch, one.node, one.cause.value) for one in await history(front)] == [
        (5, 1, "silence"),
        (4, 0, "cut_off"),
        (2, 0, "granted"),
    ]
    found = sorted(await audited(front), key=lambda extra: int(extra["epoch"]))
    assert found == [
        {"node": 0, "epoch": 2, "cause": "granted"},
        {"node": 0, "epoch": 4, "cause": "cut_off", "taken_at": SENT_AT},
        {"node": 1, "epoch": 5, "cause": "silence", "taken_at": SENT_AT},
    ]


async def test_renewal_of_a_taken_epoch_is_completed_by_its_report(front: Front) -> None:
    first, _ = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one:
        assert await one.renew(6) == EpochAnswer(1, 6, is_granted=True)
        assert [switch.cause.value for switch in await history(front)] == ["taken"]
        await one.taken(6, "cut_off")
        await one.taken(6, "cut_off")
    assert [switch.cause.value for switch in await history(front)] == ["cut_off"]
    assert len(await audited(front)) == 2


async def test_forced_promotion_takes_over_at_once_and_is_audited_with_its_reason(front: Front) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        assert await two.taken(3, "forced", "disk of node 0\nfails") == EpochAnswer(1, 3, is_granted=True)
        assert await one.renew(2) == EpochAnswer(2, 3, is_granted=False), "the former leader stops"
        assert await two.renew(3) == EpochAnswer(2, 3, is_granted=True)
    [forced] = [extra for extra in await audited(front) if extra["epoch"] == 3]
    assert forced == {
        "node": 1,
        "epoch": 3,
        "cause": "forced",
        "reason": "disk of node 0\ufffdfails",
        "taken_at": SENT_AT,
    }


async def test_planned_switch_without_an_answer_of_central_is_not_listed_as_forced(front: Front) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        # The former leader has stopped and could not give its lease back.
        assert await two.taken(3, "handed_over") == EpochAnswer(1, 3, is_granted=True)
    assert [(switch.epoch, switch.cause.value, switch.reason) for switch in await history(front)] == [
        (3, "handed_over", None),
        (2, "granted", None),
    ]
    assert {"node": 1, "epoch": 3, "cause": "handed_over", "taken_at": SENT_AT} in await audited(front)


@pytest.mark.fault(13)
async def test_leader_that_renews_is_never_replaced_while_the_nodes_do_not_hear_each_other(
    front: Front, clock: ManualClock
) -> None:
    first, second = await pair_tokens(front)
    async with served(front.app) as url, link_node(url, first) as one, link_node(url, second) as two:
        await one.ask(known=1)
        for _ in range(20):
            clock.advance(3)
            renewed, asked = await asyncio.gather(one.renew(2), two.ask(known=2))
            assert isinstance(renewed, EpochAnswer)
            assert isinstance(asked, EpochAnswer)
            assert (renewed.is_granted, asked.is_granted) == (True, False)
        # The leader is cut off from central too: now the other node leads, and the first one hears it at its return.
        clock.advance(10)
        assert await two.ask(known=2) == EpochAnswer(21, 3, is_granted=True)
        assert await one.renew(2) == EpochAnswer(22, 3, is_granted=False)


@pytest.mark.fault(15)
async def test_contested_epochs_never_have_two_holders(front: Front, store_url: str, clock: ManualClock) -> None:
    """Both nodes ask both central nodes at once, again and again; at most one of them is granted an epoch per lease."""
    first, second = await pair_tokens(front)
    known, holders = 1, {}
    async with (
        served(front.app) as here,
        second_central(front, store_url) as there,
        link_node(here, first) as one_here,
        link_node(there, first, "post") as one_there,
        link_node(here, second, "post") as two_here,
        link_node(there, second) as two_there,
    ):
        nodes = ((0, one_here), (0, one_there), (1, two_here), (1, two_there))
        for _ in range(6):
            found = await asyncio.gather(*(link.ask(known) for _, link in nodes))
            granted = {
                (answer.epoch, node)
                for (node, _), answer in zip(nodes, found, strict=True)
                if isinstance(answer, EpochAnswer) and answer.is_granted
            }
            assert len(granted) == 1, granted
            [(epoch, node)] = granted
            assert epoch > known
            assert epoch % 2 == node
            holders[epoch] = node
            known = epoch
            clock.advance(9)
            found = await asyncio.gather(*(link.ask(known) for _, link in nodes))
            assert not [one for one in found if isinstance(one, EpochAnswer) and one.is_granted], "one per lease"
            clock.advance(1)
    assert {switch.epoch: switch.node for switch in await history(front)} == holders
