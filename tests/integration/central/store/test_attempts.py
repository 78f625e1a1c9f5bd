"""Ending an attempt: row, targets, attempt and audit in one transaction, and only under the claim's token."""

import os
from copy import copy
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Boolean, Connection, insert, text

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications import (
    attempts,
    finishing,
    finishing_postgresql,
    finishing_sqlite,
    targets,
)
from fieldpost.central.store.notifications.attempts import ClaimKey, Finished
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.schema.notification_tables import breakers as breaker_table
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.breaker import Breaker, BreakerState, record_success
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.ids import new_ids
from fieldpost.core.notification import Notification, Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import LEASE_S, Centre


async def claim(centre: Centre, owner: str = "a") -> Claimed:
    [one] = await centre.claim(owner, limit=1)
    return one


def delivered(n: Notification, clock: ManualClock) -> Transition:
    reached = tuple(Target(t.address, TargetStatus.DELIVERED) for t in n.targets)
    return lifecycle.delivered(n, reached, clock.now())


def finished(claimed: Claimed, transition: Transition, clock: ManualClock, **more: Any) -> Finished:
    given: dict[str, Any] = {"outcome": "delivered", "error": None, "phase": "dot", "reply": "250 ok"} | more
    return Finished(
        claimed.notification.notification_id,
        claimed.token,
        transition,
        given["outcome"],
        given["error"],
        given["phase"],
        given["reply"],
        1234,
        clock.now(),
    )


async def apply(centre: Centre, owner: str, *ends: Finished) -> set[str]:
    event_ids = new_ids(centre.clock.now(), os.urandom(20 * len(ends)))
    return await centre.store.write(finishing.apply, owner, ends, event_ids)


@pytest.mark.req("DEC-14", "LIF-04", "LIF-07", "LIF-11", "AUD-01", "AUD-02", "AUD-10")
async def test_an_end_is_written_to_row_targets_attempt_and_audit(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send()
    clock.advance(1)
    claimed = await claim(mailing)
    clock.advance(2)
    assert await apply(mailing, "a", finished(claimed, delivered(claimed.notification, clock), clock)) == set()
    n = await mailing.get(sent)
    assert (n.status, n.delivered_at, n.terminal_at, n.last_attempt_at) == (Status.DELIVERED, *[clock.now()] * 3)
    assert (n.due_at, n.next_attempt_at, n.version) == (None, None, 2)
    assert n.targets == (Target("ops@example.org", TargetStatus.DELIVERED),)
    assert await mailing.claim_of(sent) == (None, 1, 0)
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.phase, attempt.reply, attempt.duration_ms) == ("delivered", "dot", "250 ok", 1234)
    assert (attempt.started_at, attempt.finished_at) == (clock.now() - timedelta(seconds=2), clock.now())
    entries = (await mailing.audit(sent))[1:]
    assert [(e.kind, e.status, e.actor, e.duration_ms, e.response_summary) for e in entries] == [
        ("notify_deliver", "attempted", "system", 1234, "250 ok"),
        ("notify_deliver", "delivered", "system", None, None),
    ]


async def check_that_a_late_result_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    """Node a holds a claim past its lease; node b takes the row, and a comes back with its result."""
    sent = await mailing.send()
    stale = await claim(mailing, "a")
    clock.advance(LEASE_S)
    taken = await claim(mailing, "b")
    before = await mailing.get(sent)
    late = await apply(mailing, "a", finished(stale, delivered(stale.notification, clock), clock))
    assert await mailing.get(sent) == before
    assert await mailing.claim_of(sent) == ("b", 2, 1)
    assert late == {sent}
    assert [a.outcome for a in await mailing.attempts(sent)] == ["delivered", None]
    assert await mailing.story(sent) == ["notify_send submitted", "notify_deliver skipped"]
    assert "late" in str((await mailing.audit(sent))[-1].error_message)
    retrying = lifecycle.retrying(
        taken.notification, "451", taken.notification.targets, clock.now() + timedelta(minutes=1), clock.now()
    )
    assert await apply(mailing, "b", finished(taken, retrying, clock, outcome="transient_failure")) == set()
    assert (await mailing.get(sent)).status is Status.RETRYING


@pytest.mark.req("DEC-03")
@pytest.mark.fault(23)
async def test_a_late_result_is_audited_and_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    await check_that_a_late_result_changes_nothing(mailing, clock)


@pytest.mark.req("DEC-03")
@pytest.mark.parametrize(
    "condition",
    ["and notifications.claim_token = u.claim_token", "and notifications.claim_owner = :owner"],
    ids=["token", "owner"],
)
async def test_check_of_late_results_detects_a_statement_without_the_claim_condition(
    mailing: Centre, clock: ManualClock, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the update without one of its conditions, which only the other one would hide."""
    forget(condition, monkeypatch)
    if "token" in condition:
        # The owner alone would still keep strangers out, so here the same node takes the row twice.
        with pytest.raises(AssertionError):
            await check_that_an_older_claim_of_the_same_node_changes_nothing(mailing, clock)
    else:
        with pytest.raises(AssertionError):
            await check_that_another_nodes_name_changes_nothing(mailing, clock)


@pytest.mark.req("DEC-03")
async def test_an_older_claim_of_the_same_node_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    await check_that_an_older_claim_of_the_same_node_changes_nothing(mailing, clock)


@pytest.mark.req("DEC-03")
async def test_a_result_under_another_nodes_name_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    await check_that_another_nodes_name_changes_nothing(mailing, clock)


@pytest.mark.req("DEC-03")
@pytest.mark.fault(29)
async def test_an_end_written_a_second_time_has_no_second_effect(mailing: Centre, clock: ManualClock) -> None:
    """As after a commit whose answer was lost."""
    sent = await mailing.send()
    clock.advance(1)
    claimed = await claim(mailing)
    retrying = lifecycle.retrying(
        claimed.notification, "451", claimed.notification.targets, clock.now() + timedelta(minutes=1), clock.now()
    )
    end = finished(claimed, retrying, clock, outcome="transient_failure", error="451")
    assert await apply(mailing, "a", end) == set()
    after = await mailing.get(sent)
    assert await apply(mailing, "a", end) == set()
    assert await mailing.get(sent) == after
    assert await mailing.story(sent) == ["notify_send submitted", "notify_deliver attempted"]


@pytest.mark.req("DEC-03")
async def test_of_a_batch_only_the_lost_claims_are_late(mailing: Centre, clock: ManualClock) -> None:
    kept, lost = await mailing.send_many(2)
    claimed = {c.notification.notification_id: c for c in (await claim_all(mailing))}
    await mailing.execute(f"update notifications set claim_token = 9 where notification_id = '{lost}'")
    ends = [finished(c, delivered(c.notification, clock), clock) for c in claimed.values()]
    assert await apply(mailing, "a", *ends) == {lost}
    assert (await mailing.get(kept)).status is Status.DELIVERED
    assert (await mailing.get(lost)).status is Status.PENDING


@pytest.mark.req("DEC-11")
async def test_only_the_targets_that_change_are_written(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("three", "a@example.org", "b@example.org", "c@example.org")
    sent = await mailing.send("three")
    n = (await claim(mailing)).notification
    reached = Target("a@example.org", TargetStatus.DELIVERED)
    failed = Target("c@example.org", TargetStatus.FAILED, "550 unknown")
    transition = lifecycle.retrying(
        n, "mixed", (reached, Target("b@example.org"), failed), clock.now() + timedelta(minutes=1), clock.now()
    )
    await mailing.store.write(targets.settle_targets, [(sent, transition, clock.now())])
    await mailing.store.write(targets.settle_targets, [])
    assert (await mailing.get(sent)).targets == (reached, Target("b@example.org"), failed)


@pytest.mark.req("DEC-15")
async def test_history_keeps_all_attempts_over_cycles_and_counts_them(mailing: Centre, clock: ManualClock) -> None:
    sent, other = await mailing.send_many(2)
    await mailing.execute(f"update notifications set due_at = created_at where notification_id = '{sent}'")
    claimed = {c.notification.notification_id: c for c in await claim_all(mailing)}
    n = claimed[sent].notification
    end = finished(claimed[sent], lifecycle.parked(n, "550", n.targets, clock.now()), clock, outcome="uncertain")
    await apply(mailing, "a", end)
    assert await mailing.retry(sent)
    await claim(mailing, "b")
    history = await mailing.attempts(sent)
    assert [(a.token, a.cycle, a.node_id, a.outcome) for a in history] == [(1, 1, "a", "uncertain"), (2, 2, "b", None)]
    never = "019b76da-a800-7000-8000-000000000000"
    assert await mailing.store.read(attempts.counts, [sent, other, never]) == {sent: 2, other: 1}
    assert await mailing.store.read(attempts.counts, []) == {}
    assert await mailing.attempts(never) == []


async def check_that_an_older_claim_of_the_same_node_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send()
    older = await claim(mailing, "a")
    clock.advance(LEASE_S)
    await claim(mailing, "a")
    before = await mailing.get(sent)
    assert await apply(mailing, "a", finished(older, delivered(older.notification, clock), clock)) == {sent}
    assert await mailing.get(sent) == before
    assert await mailing.claim_of(sent) == ("a", 2, 1)


async def check_that_another_nodes_name_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send()
    claimed = await claim(mailing, "a")
    before = await mailing.get(sent)
    await apply(mailing, "b", finished(claimed, delivered(claimed.notification, clock), clock))
    assert await mailing.get(sent) == before
    assert await mailing.claim_of(sent) == ("a", 1, 0)


async def claim_all(centre: Centre) -> list[Claimed]:
    return await centre.claim("a")


def forget(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take one of its conditions out of the statements that apply an end."""
    for module, name, dialect in (
        (finishing_postgresql, "_write_delivered", "postgresql"),
        (finishing_postgresql, "_write_any", "postgresql"),
        (finishing_sqlite, "_write_rows", "sqlite"),
    ):
        careful: Statement = getattr(module, name)
        clause = careful._texts[dialect]
        sql = clause.element.text  # type: ignore[attr-defined]
        assert condition in sql, "the condition to take out is not there"
        careless = copy(careful)
        careless._texts = {dialect: text(sql.replace(condition, "")).columns(**_RESULT[name])}  # type: ignore[dict-item]
        monkeypatch.setattr(module, name, careless)


_RESULT: dict[str, dict[str, Any]] = {
    "_write_delivered": {"notification_id": Id, "is_mine": Boolean},
    "_write_any": {"notification_id": Id, "is_mine": Boolean},
    "_write_rows": {"notification_id": Id},
}


HEALTHY = Breaker("channel:mail", version=1)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.req("DEC-22")
@pytest.mark.parametrize(
    "breaker",
    [
        HEALTHY,
        replace(HEALTHY, last_error="451", wait_until=LONG_AGO, wait_kind="rate_limit", wait_reason="429"),
        replace(HEALTHY, version=0),
        replace(HEALTHY, state=BreakerState.OPEN, open_until=LONG_AGO),
        replace(HEALTHY, failures=1),
        replace(HEALTHY, first_failure_at=LONG_AGO),
        replace(HEALTHY, last_failure_at=LONG_AGO),
        replace(HEALTHY, open_until=LONG_AGO),
        replace(HEALTHY, probe_owner="a"),
        replace(HEALTHY, probe_until=LONG_AGO),
        replace(HEALTHY, failing_since=LONG_AGO),
        replace(HEALTHY, warned_percent=50),
        replace(HEALTHY, release_size=4),
        replace(HEALTHY, probed_key="list:ops"),
    ],
    ids=lambda breaker: ", ".join(f.name for f in fields(breaker) if getattr(breaker, f.name) != f.default) or "none",
)
async def test_delivery_without_a_transaction_is_written_only_if_a_success_leaves_the_breaker_as_it_is(
    mailing: Centre, clock: ManualClock, breaker: Breaker
) -> None:
    """The condition in SQL and the rule in `core` must agree."""
    sent = await mailing.send()
    await mailing.store.write(add_breaker, breaker)
    clock.advance(1)
    claimed = await claim(mailing)
    before = await mailing.get(sent)
    end = finished(claimed, delivered(claimed.notification, clock), clock)
    done, late = await deliver(mailing, "a", end)
    is_unchanged = record_success(breaker) is breaker
    assert (done, late) == ({end.claim} if is_unchanged else set(), set())
    if not is_unchanged:
        assert await mailing.get(sent) == before
        assert [attempt.outcome for attempt in await mailing.attempts(sent)] == [None]
        return
    n = await mailing.get(sent)
    assert (n.status, n.delivered_at, n.due_at) == (Status.DELIVERED, clock.now(), None)
    assert n.targets == (Target("ops@example.org", TargetStatus.DELIVERED),)
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.phase, attempt.reply, attempt.duration_ms) == ("delivered", "dot", "250 ok", 1234)
    assert await mailing.story(sent) == [
        "notify_send submitted",
        "notify_deliver attempted",
        "notify_deliver delivered",
    ]


@pytest.mark.req("DEC-03", "DEC-22")
async def test_breaker_without_a_row_gets_one_by_the_first_success(mailing: Centre, clock: ManualClock) -> None:
    await mailing.send()
    claimed = await claim(mailing)
    end = finished(claimed, delivered(claimed.notification, clock), clock)
    assert await deliver(mailing, "a", end) == (set(), set())


@pytest.mark.req("DEC-03")
@pytest.mark.fault(23)
async def test_delivery_without_a_transaction_changes_nothing_under_a_lost_claim(
    mailing: Centre, clock: ManualClock
) -> None:
    sent = [await mailing.send() for _ in range(2)]
    await mailing.store.write(add_breaker, HEALTHY)
    stale = await claim(mailing, "a")
    clock.advance(LEASE_S)
    taken = {one.notification.notification_id: one for one in await mailing.claim("b", limit=2)}
    ends = [finished(one, delivered(one.notification, clock), clock) for one in (stale, taken[sent[1]])]
    lost = stale.notification.notification_id
    done, late = await deliver(mailing, "b", ends[1])
    assert (done, late) == ({ends[1].claim}, set())
    done, late = await deliver(mailing, "a", ends[0])
    if not done:  # PostgreSQL leaves it to the transaction, which records it as late
        late = await apply(mailing, "a", ends[0])
    assert late == {lost}
    assert (await mailing.get(lost)).status is Status.PENDING
    assert await mailing.claim_of(lost) == ("b", 2, 1)
    assert await mailing.story(lost) == ["notify_send submitted", "notify_deliver skipped"]


async def deliver(centre: Centre, owner: str, *ends: Finished) -> tuple[set[ClaimKey], set[str]]:
    event_ids = new_ids(centre.clock.now(), os.urandom(20 * len(ends)))
    return await centre.store.write_one(finishing.deliver, owner, ends, event_ids, [HEALTHY.key])


def add_breaker(conn: Connection, breaker: Breaker) -> None:
    """In any state, also one that no rule produces."""
    conn.execute(insert(breaker_table).values({f.name: getattr(breaker, f.name) for f in fields(breaker)}))
