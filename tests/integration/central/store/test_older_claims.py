"""A node that still has an older claim of a row in its hands: it takes the row no second time, and of two ends of one
row in one batch each is judged by its own token."""

import os
from dataclasses import replace

import pytest

from fieldpost.central.store.notifications import due, finishing
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.ids import new_ids
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import LEASE_S, Centre


async def claim(centre: Centre, owner: str, *mine: str, lane: Lane = Lane.FRESH) -> list[Claimed]:
    return await centre.claim(owner, lane, limit=10, mine=mine)


def parked(claimed: Claimed, clock: ManualClock) -> Finished:
    n = claimed.notification
    transition = lifecycle.parked(n, "550 no", n.targets, clock.now())
    return Finished(
        n.notification_id, claimed.token, transition, "permanent_failure", "550 no", None, None, 5, clock.now()
    )


def retrying(claimed: Claimed, clock: ManualClock) -> Finished:
    n = claimed.notification
    counted = replace(n, retry_count=n.retry_count + 1)
    transition = lifecycle.retrying(counted, "451 later", n.targets, clock.now(), clock.now())
    return Finished(
        n.notification_id, claimed.token, transition, "transient_failure", "451 later", None, None, 5, clock.now()
    )


async def apply(centre: Centre, owner: str, *ends: Finished) -> set[str]:
    event_ids = new_ids(centre.clock.now(), os.urandom(20 * len(ends)))
    return await centre.store.write(finishing.apply, owner, ends, event_ids)


@pytest.mark.req("DEC-06")
async def test_a_row_that_another_node_took_over_and_gave_back_is_not_taken_a_second_time(
    mailing: Centre, clock: ManualClock
) -> None:
    """Frozen past its lease, node a still talks to the server; b had the row meanwhile and is to try again."""
    sent = await mailing.send()
    await claim(mailing, "a")
    clock.advance(LEASE_S)
    [taken] = await claim(mailing, "b")
    await apply(mailing, "b", retrying(taken, clock))
    assert await mailing.store.write(due.promote, 10, now=mailing.store.now()) == 1
    assert await claim(mailing, "a", sent, lane=Lane.RETRY) == []
    assert [one.token for one in await claim(mailing, "a", lane=Lane.RETRY)] == [3]


@pytest.mark.req("DEC-03")
@pytest.mark.parametrize("is_older_first", [True, False])
async def test_two_ends_of_one_row_in_a_batch_write_only_the_one_with_the_claim(
    mailing: Centre, clock: ManualClock, is_older_first: bool
) -> None:
    sent = await mailing.send()
    [older] = await claim(mailing, "a")
    clock.advance(LEASE_S)
    [newer] = await claim(mailing, "a")
    ends = [parked(older, clock), retrying(newer, clock)]
    assert await apply(mailing, "a", *(ends if is_older_first else reversed(ends))) == {sent}
    n = await mailing.get(sent)
    assert (n.status, n.retry_count, n.last_error) == (Status.RETRYING, 1, "451 later")
    assert [t.status for t in n.targets] == [TargetStatus.DUE]
    assert sorted(await mailing.story(sent)) == [
        "notify_deliver attempted",
        "notify_deliver skipped",
        "notify_send submitted",
    ]
    assert [a.outcome for a in await mailing.attempts(sent)] == ["permanent_failure", "transient_failure"]
