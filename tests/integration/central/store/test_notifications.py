"""Looking at notifications, and changes outside a claim: an operator's, by compare-and-set."""

import asyncio
from datetime import timedelta

import pytest

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.notifications import records
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.outcome import PermanentFailure, TransientFailure
from fieldpost.core.notification import Notification, Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre


async def park(centre: Centre, list_name: str = "ops") -> Notification:
    """One parked notification."""
    centre.adapter.answer(list_name, PermanentFailure("550 unknown"))
    sent = await centre.send(list_name)
    await centre.deliver()
    return await centre.get(sent)


@pytest.mark.threat(1)
async def test_notification_of_another_site_is_not_found(centre: Centre) -> None:
    sent = await centre.send(site=SITE)
    assert await centre.store.read(records.get, sent, SITE) is not None
    assert await centre.store.read(records.get, sent, "another") is None
    assert await centre.store.read(records.get, "019b76da-a800-7000-8000-000000000000") is None


async def test_every_status_is_counted(mailing: Centre) -> None:
    await park(mailing)
    await mailing.send_many(2)
    assert await mailing.store.read(kpis.count_by_status) == {
        Status.PENDING: 2,
        Status.RETRYING: 0,
        Status.DELIVERED: 0,
        Status.PARKED: 1,
        Status.DISCARDED: 0,
    }


@pytest.mark.req("CMD-08", "DEC-15", "DEC-11")
async def test_retry_starts_a_cycle_for_the_failed_targets(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("two", "a@example.org", "b@example.org")
    reached = Target("a@example.org", TargetStatus.DELIVERED)
    failed = Target("b@example.org", TargetStatus.FAILED, "550 unknown")
    mailing.adapter.answer("two", PermanentFailure("b failed", (reached, failed)))
    sent = await mailing.send("two")
    await mailing.deliver()
    before = await mailing.get(sent)
    assert (before.status, before.cycle) == (Status.PARKED, 1)
    clock.advance(60)
    assert await mailing.retry(sent)
    n = await mailing.get(sent)
    assert (n.status, n.retry_count, n.next_attempt_at, n.last_error) == (Status.PENDING, 0, None, None)
    assert (n.cycle, n.cycle_started_at, n.due_at, n.terminal_at) == (2, clock.now(), clock.now(), None)
    assert n.targets == (reached, Target("b@example.org"))
    assert n.version == before.version + 1


@pytest.mark.req("LIF-06")
async def test_discard_is_final_and_keeps_the_row(mailing: Centre, clock: ManualClock) -> None:
    seen = await park(mailing)
    clock.advance(60)
    now = clock.now()
    assert await mailing.store.write(records.change, seen, lifecycle.discard(seen, now), now)
    n = await mailing.get(seen.notification_id)
    assert (n.status, n.terminal_at, n.last_error, n.cycle) == (Status.DISCARDED, now, seen.last_error, 1)
    await mailing.deliver()
    assert len(mailing.adapter.envelopes) == 1


@pytest.mark.req("DEC-03")
async def test_one_of_many_actions_on_a_row_wins(mailing: Centre, clock: ManualClock) -> None:
    seen = await park(mailing)
    now = clock.now()
    acts = [lifecycle.retry(seen, now), lifecycle.discard(seen, now)] * 5
    done = await asyncio.gather(*(mailing.store.write(records.change, seen, act, now) for act in acts))
    assert sum(done) == 1
    n = await mailing.get(seen.notification_id)
    assert n.status is acts[done.index(True)].status
    assert n.version == seen.version + 1


@pytest.mark.req("DEC-03")
async def test_action_on_a_row_parked_again_since_it_was_seen_is_rejected(mailing: Centre, clock: ManualClock) -> None:
    seen = await park(mailing)
    assert await mailing.retry(seen.notification_id)
    mailing.adapter.answer("ops", PermanentFailure("551 moved"))
    await mailing.deliver()
    now = clock.now()
    assert not await mailing.store.write(records.change, seen, lifecycle.discard(seen, now), now)
    n = await mailing.get(seen.notification_id)
    assert (n.status, n.cycle) == (Status.PARKED, 2)
    assert "551 moved" in str(n.last_error)


@pytest.mark.req("DEC-03")
async def test_change_of_a_claimed_row_is_rejected(mailing: Centre, clock: ManualClock) -> None:
    seen = await mailing.get(await mailing.send())
    await mailing.execute("update notifications set claim_owner = 'a', lease_until = created_at")
    given_up = lifecycle.parked(seen, "held too long", (), clock.now())
    assert not await mailing.store.write(records.change, seen, given_up, clock.now())
    assert (await mailing.get(seen.notification_id)).status is Status.PENDING


@pytest.mark.req("DEC-10")
async def test_long_held_rows_are_found_unless_claimed(mailing: Centre, clock: ManualClock) -> None:
    old, claimed, free = await mailing.send_many(3)
    clock.advance(100)
    young = await mailing.send()
    for i in (old, claimed, young):
        await mailing.execute(
            f"update notifications set held_by = 'channel:mail', held_reason = 'x' where notification_id = '{i}'"
        )
    await mailing.execute(
        f"update notifications set claim_owner = 'a', lease_until = created_at where notification_id = '{claimed}'"
    )
    cutoff = clock.now() - timedelta(seconds=50)
    found = await mailing.store.read(records.held_since_before, cutoff, 10)
    assert [n.notification_id for n in found] == [old]
    assert free not in {n.notification_id for n in found}


@pytest.mark.req("DEC-04")
async def test_time_is_the_given_one_or_that_of_the_database(centre: Centre, clock: ManualClock) -> None:
    assert await centre.store.read(database_time, clock.now()) == clock.now()
    if centre.is_postgresql:
        first = await centre.store.read(database_time, None)
        second = await centre.store.read(database_time, None)
        assert clock.now() < first < second


async def test_row_after_a_transient_failure_can_be_read(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.answer("ops", TransientFailure("451 später"))
    sent = await mailing.send()
    await mailing.deliver()
    n = await mailing.get(sent)
    assert n.status is Status.RETRYING
    assert (n.next_attempt_at, n.due_at) == (clock.now() + timedelta(seconds=60),) * 2
    assert n.last_error == "451 später"
