"""The steps of a notification's way."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.store.notifications.attempts import AttemptRecord
from fieldpost.central.watch.timeline import Tone, cycles, stops, timeline
from fieldpost.core.audit import AuditEntry, AuditKind, AuditStatus
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Notification, Provenance, Status, Target, TargetStatus

T0 = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)
PENDING = Notification(
    notification_id=NotificationId("0198c8a0-0000-7000-8000-000000000001"),
    type="email",
    list_name="ops",
    subject="Pump 3 is hot",
    body="",
    provenance=Provenance("plant-7", script="watch.py"),
    status=Status.PENDING,
    delivery_key="list:ops",
    created_at=T0,
    due_at=T0,
    cycle_started_at=T0,
    site_enqueued_at=T0 - timedelta(seconds=5),
)


def attempt(minute: int, outcome: str | None, **more: object) -> AttemptRecord:
    made = AttemptRecord(minute, 1, "node", False, T0 + timedelta(minutes=minute), None, outcome, None, None, None, 5)
    return replace(made, **more)  # type: ignore[arg-type]


def act(minute: int, status: AuditStatus) -> AuditEntry:
    at = T0 + timedelta(minutes=minute)
    return AuditEntry(event_id="x", occurred_at=at, kind=AuditKind.OPERATOR_ACTION, status=status, actor="maria")


def titles(n: Notification, attempts: tuple[AttemptRecord, ...] = (), acts: tuple[AuditEntry, ...] = ()) -> list[str]:
    return [step.title for step in timeline(n, attempts, acts)]


def test_timeline_before_the_first_attempt_has_sending_and_arrival() -> None:
    sent, arrived, due = timeline(PENDING, (), ())
    assert (sent.title, sent.at, sent.facts) == (
        "Sent at plant-7",
        T0 - timedelta(seconds=5),
        (("script", "watch.py"),),
    )
    assert (arrived.title, arrived.at) == ("Arrived at central", T0)
    assert (due.title, due.tone, due.at) == ("Next attempt is due now", Tone.NEXT, None)


def test_attempts_and_operator_actions_are_in_order_of_time() -> None:
    delivered = replace(PENDING, status=Status.DELIVERED, due_at=None, cycle=2, delivered_at=T0 + timedelta(minutes=9))
    attempts = (attempt(1, "transient_failure"), attempt(2, "permanent_failure"), attempt(9, "delivered"))
    assert titles(delivered, attempts, (act(8, AuditStatus.SUBMITTED),))[2:] == [
        "Attempt 1: failed, will be retried",
        "Attempt 2: failed permanently",
        "Retried by maria",
        "Attempt 3: delivered",
        "Delivered",
    ]


@pytest.mark.parametrize(
    ("n", "last"),
    [
        (replace(PENDING, status=Status.PARKED, due_at=None, terminal_at=T0), "Parked until an operator acts"),
        (replace(PENDING, status=Status.DISCARDED, due_at=None, terminal_at=T0), "Discarded by maria"),
        (replace(PENDING, status=Status.RETRYING, next_attempt_at=T0), "Next attempt is due now"),
        (
            replace(PENDING, held_by="channel:mail", held_reason="no connection"),
            "Held by channel:mail; next attempt is due now",
        ),
    ],
)
def test_last_step_is_the_next_attempt_or_the_end(n: Notification, last: str) -> None:
    acts = (act(3, AuditStatus.DISCARDED),) if n.status is Status.DISCARDED else ()
    assert titles(n, (), acts)[-1] == last


def test_the_next_attempt_has_the_time_of_the_probe_not_the_past_due_time_of_the_row() -> None:
    held = replace(PENDING, held_by="channel:mail", held_reason="no connection")
    probe_at = T0 + timedelta(minutes=7)
    last = timeline(held, (), (), probe_at)[-1]
    assert (last.title, last.at) == ("Held by channel:mail; next attempt", probe_at)


@pytest.mark.parametrize(
    "outcome",
    [
        *("delivered", "transient_failure", "permanent_failure", "uncertain", "held", "released", "abandoned"),
        *("crashed", None),
    ],
)
def test_every_outcome_in_the_table_has_a_title(outcome: str | None) -> None:
    assert timeline(PENDING, (attempt(1, outcome),), ())[2].title.startswith("Attempt 1: ")


def test_reply_quoted_in_the_error_is_shown_once() -> None:
    told = timeline(PENDING, (attempt(1, "transient_failure", error="at rcpt: 451 busy", reply="451 busy"),), ())[2]
    assert (told.error, told.reply) == ("at rcpt: 451 busy", None)


def test_invalid_site_time_is_quoted() -> None:
    n = replace(PENDING, site_enqueued_at=None, site_enqueued_text="yesterday")
    assert timeline(n, (), ())[0].note == "the site reported the time 'yesterday'"


def test_each_manual_retry_starts_a_cycle_with_its_reason() -> None:
    action_id = "0198c8a0-0000-7000-8000-0000000000aa"
    again = replace(act(3, AuditStatus.SUBMITTED), request_summary="the relay is back", bulk_action_id=action_id)
    steps = timeline(replace(PENDING, cycle=2), (attempt(1, "permanent_failure"), attempt(4, None)), (again,))
    first, second = cycles(steps)
    assert [step.title for step in first][-1] == "Attempt 1: failed permanently"
    assert [step.title for step in second] == ["Retried by maria", "Attempt 2: in progress", "Next attempt is due now"]
    assert (second[0].note, second[0].action_id) == ("the relay is back", action_id)


PARKED = replace(PENDING, status=Status.PARKED, due_at=None, terminal_at=T0, last_error="no")
HALF = (Target("a@x.example", TargetStatus.DELIVERED), Target("b@x.example", TargetStatus.FAILED, "no"))


@pytest.mark.parametrize(
    ("n", "tries", "states"),
    [
        (PENDING, (), "done done here ahead ahead"),
        (PENDING, (attempt(1, None),), "done done done here ahead"),
        (replace(PENDING, held_by="channel:mail", held_reason="no"), (), "done done done wait ahead"),
        (
            replace(PENDING, status=Status.RETRYING, next_attempt_at=T0),
            (attempt(1, "transient_failure", phase="connect", finished_at=T0),),
            "done done done wait ahead",
        ),
        (PARKED, (attempt(1, "permanent_failure", phase="resolve", finished_at=T0),), "done done bad ahead ahead"),
        (PARKED, (attempt(1, "permanent_failure", phase="auth", finished_at=T0),), "done done done bad ahead"),
        (PARKED, (attempt(1, "permanent_failure", phase="rcpt", finished_at=T0),), "done done done done bad"),
        (
            replace(PARKED, targets=HALF),
            (attempt(1, "permanent_failure", phase="quit", finished_at=T0),),
            "done done done done bad",
        ),
        (
            replace(PENDING, status=Status.DELIVERED, due_at=None),
            (attempt(1, "delivered"),),
            "done done done done done",
        ),
    ],
)
def test_stops_show_the_position_of_the_notification(
    n: Notification, tries: tuple[AttemptRecord, ...], states: str
) -> None:
    found = stops(n, tries, "mail")
    assert [stop.place for stop in found] == ["script", "site", "central", "channel", "inbox"]
    assert " ".join(stop.state.value for stop in found) == states


def test_stops_name_application_or_site_and_count_reached_targets() -> None:
    n = replace(PARKED, provenance=Provenance("app:billing"), targets=HALF)
    found = stops(n, (attempt(1, "permanent_failure", phase="rcpt", finished_at=T0),), "mail")
    assert (found[0].place, found[1].place, found[1].name) == ("application", "API", "billing")
    assert (found[3].note, found[4].note) == ("1 attempt", "1 of 2 reached")


def test_a_webhook_is_published_by_an_application_and_ends_at_its_receiver() -> None:
    webhook = replace(
        PENDING,
        type="webhook",
        delivery_key="subscription:01a1dd22-fc60-7e05-b90f-877bde52b410",
        event_id="01a1dd25-bb80-7837-bda4-e369edd2428d",
        provenance=Provenance("app:shop"),
        targets=(Target("subscription:01a1dd22-fc60-7e05-b90f-877bde52b410"),),
    )
    assert titles(webhook, (attempt(1, "held"),))[::2] == [
        "Published by shop",
        "Attempt 1: held: central could not make the call",
    ]
    assert [stop.place for stop in stops(webhook, (), None)][3:] == ["webhook", "receiver"]
    assert stops(webhook, (), None)[4].note is None
