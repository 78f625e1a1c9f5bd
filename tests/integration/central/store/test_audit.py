"""The audit log: what an entry holds, and in which order the story is told."""

import os
from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications.audit import NotificationEntry
from fieldpost.core.audit import SYSTEM, AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.ids import new_ids
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre


def some_ids(clock: ManualClock, count: int) -> list[str]:
    return new_ids(clock.now(), os.urandom(10 * count))


@pytest.mark.req("AUD-04", "AUD-05", "AUD-06")
async def test_an_entry_takes_provenance_and_target_from_the_row(centre: Centre, clock: ManualClock) -> None:
    sent = await centre.send(script="watch.py", instance="pump-3", execution_id="run-17", parent_execution_id="run-16")
    [event_id] = some_ids(clock, 1)
    clock.advance(1)
    entry = NotificationEntry(
        event_id,
        sent,
        clock.now(),
        AuditKind.NOTIFY_DELIVER,
        AuditStatus.ATTEMPTED,
        SYSTEM,
        17,
        "451 busy",
        "451",
    )
    await centre.store.write(audit.add_for_notifications, "node-1", [entry])
    await centre.store.write(audit.add_for_notifications, "node-1", [])
    assert (await centre.audit(sent))[-1] == AuditEntry(
        event_id=event_id,
        occurred_at=clock.now(),
        kind=AuditKind.NOTIFY_DELIVER,
        status=AuditStatus.ATTEMPTED,
        actor="system",
        channel=AuditChannel.NOTIFICATION,
        correlation_id=sent,
        execution_id="run-17",
        parent_execution_id="run-16",
        source_site_id=SITE,
        source_node="node-1",
        source_instance_id="pump-3",
        source_script="watch.py",
        target="ops",
        duration_ms=17,
        error_message="451 busy",
        response_summary="451",
    )


async def test_entry_without_a_row_round_trips(centre: Centre, clock: ManualClock) -> None:
    about, event_id = some_ids(clock, 2)
    entry = AuditEntry(
        event_id=event_id,
        occurred_at=clock.now(),
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        actor="anna",
        channel=AuditChannel.API_INBOUND,
        correlation_id=about,
        request_summary="request",
        bulk_action_id=event_id,
        extra={"reason": "bulk — Störung", "count": 3},
    )
    await centre.store.write(audit.add, [entry])
    await centre.store.write(audit.add, [])
    assert await centre.audit(about) == [entry]


async def test_audit_story_is_in_order_of_time(centre: Centre, clock: ManualClock) -> None:
    about, *event_ids = some_ids(clock, 4)
    first = AuditEntry(
        event_id=event_ids[2],
        occurred_at=clock.now(),
        kind=AuditKind.NOTIFY_SEND,
        status=AuditStatus.FAILED,
        actor=SYSTEM,
        correlation_id=about,
    )
    later = clock.now() + timedelta(microseconds=1)
    second = replace(first, event_id=event_ids[0], occurred_at=later)
    third = replace(second, event_id=event_ids[1])
    await centre.store.write(audit.add, [third, first, second])
    assert await centre.audit(about) == [first, second, third]
