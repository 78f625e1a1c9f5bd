"""What a site does on central's word: each command once, on the real buffer."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fieldpost.core.ids import new_id
from fieldpost.core.sites.forwarding import Box
from fieldpost.core.sites.message import MessageStatus
from fieldpost.core.times import to_microseconds
from fieldpost.link.messages import Command, CommandResult, Item
from fieldpost.site.buffer import command_log, event_log, event_queries
from fieldpost.site.reporting.commands import CommandHandler
from fieldpost.testing import ManualClock
from support.calls import Calls


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Calls]:
    opened = Calls(tmp_path / "buffer.db", ManualClock())
    yield opened
    opened.close()


def command(calls: Calls, kind: str, message_id: str | None = None, **arguments: str | int) -> Command:
    if message_id is not None:
        arguments["message_id"] = message_id
    return Command(new_id(calls.clock.now(), os.urandom(10)), kind, arguments, "olga")


def apply(calls: Calls, asked: Command) -> CommandResult:
    return CommandHandler(calls.buffer, calls.clock).apply(asked)


def rejected(calls: Calls, subject: str = "Pump 3 stopped") -> str:
    """A notification that central has refused."""
    notification_id = new_id(calls.clock.now(), os.urandom(10))
    item = Item(notification_id, "ops", subject, "")
    calls.buffer.add(
        message_id=notification_id,
        payload=msgspec.json.encode(item).decode(),
        created_at=to_microseconds(calls.clock.now()),
    )
    calls.buffer.settle([(notification_id, Box("list.unknown", "there is no such list"))], calls.clock.now())
    return notification_id


def kinds(calls: Calls, message_id: str) -> list[str]:
    wanted = event_queries.SiteEventFilter(message_id=message_id)
    return [entry.kind for entry in calls.buffer.read(lambda cursor: event_queries.query(cursor, wanted))][::-1]


@pytest.mark.req("TEL-05", "TEL-07", "TEL-10")
def test_a_retry_moves_message_and_record_back_to_the_queue(calls: Calls) -> None:
    one = calls.parked()
    message = calls.buffer.find(one)
    assert message is not None
    result = apply(calls, command(calls, "retry", one))
    assert (result.outcome, result.detail) == ("applied", None)
    assert calls.record(one).status == "retrying"
    waiting = calls.buffer.find(one)
    assert waiting is not None
    assert (getattr(waiting, "status", None), waiting.retry_count) == (MessageStatus.PENDING, 0)
    assert kinds(calls, one)[-1] == "requeued"


@pytest.mark.req("TEL-08", "TEL-10", "TRK-09")
def test_a_discard_removes_the_message_and_ends_the_record(calls: Calls) -> None:
    one = calls.parked()
    assert apply(calls, command(calls, "discard", one)).outcome == "applied"
    assert calls.buffer.find(one) is None
    assert calls.record(one).status == "discarded"


@pytest.mark.req("DEC-27")
def test_repeated_command_is_applied_once_with_the_same_answer(calls: Calls) -> None:
    one = calls.parked()
    asked = command(calls, "retry", one)
    assert apply(calls, asked).outcome == "applied"
    calls.park(one)
    version = calls.record(one).version
    for _ in range(3):
        assert apply(calls, asked).outcome == "applied"
    assert (calls.record(one).status, calls.record(one).version) == ("parked", version)
    assert apply(calls, command(calls, "retry", one)).outcome == "applied"
    assert calls.record(one).status == "retrying"


@pytest.mark.req("TEL-08")
def test_call_in_progress_is_not_discarded(calls: Calls) -> None:
    fresh, retrying = calls.issue(), calls.issue()
    calls.put_off(retrying)
    for one, status in ((fresh, "pending"), (retrying, "retrying")):
        assert apply(calls, command(calls, "discard", one)).outcome == "not_parked"
        assert (calls.buffer.find(one) is not None, calls.record(one).status) == (True, status)


@pytest.mark.req("TEL-09")
def test_command_on_an_unparked_call_answers_so_also_when_repeated(calls: Calls) -> None:
    live, done = calls.issue(), calls.issue()
    calls.deliver(done)
    asked = command(calls, "retry", live)
    for one in (asked, command(calls, "discard", done), command(calls, "retry", "nonsense"), command(calls, "retry")):
        assert apply(calls, one).outcome == "not_parked"
    calls.park(live)
    assert apply(calls, asked).outcome == "not_parked"
    assert calls.record(live).status == "parked"


@pytest.mark.req("TRK-10")
def test_failed_call_offers_no_action(calls: Calls) -> None:
    one = calls.issue()
    calls.fail(one)
    for kind in ("retry", "discard"):
        assert apply(calls, command(calls, kind, one)).outcome == "not_parked"
    assert calls.record(one).status == "failed"


def test_unknown_command_is_answered_as_failed(calls: Calls) -> None:
    for kind in ("explode", "reconcile"):
        result = apply(calls, command(calls, kind))
        assert result.outcome == "operation_failed"
        assert result.detail
    assert apply(calls, command(calls, "query_events", severity="grave")).outcome == "operation_failed"
    assert apply(calls, command(calls, "list_parked", cursor="x")).outcome == "operation_failed"


@pytest.mark.req("DEC-27")
def test_action_on_a_full_disk_has_no_effect_and_can_be_repeated(calls: Calls) -> None:
    one = calls.parked()
    asked = command(calls, "retry", one)
    calls.buffer.write(lambda cursor: cursor.execute("ALTER TABLE commands RENAME TO hidden") and None)
    assert apply(calls, asked).outcome == "operation_failed"
    assert calls.record(one).status == "parked"
    calls.buffer.write(lambda cursor: cursor.execute("ALTER TABLE hidden RENAME TO commands") and None)
    assert apply(calls, asked).outcome == "applied"


@pytest.mark.req("TEL-06")
def test_parked_calls_are_listed_page_by_page(calls: Calls) -> None:
    made = [calls.parked() for _ in range(5)]
    calls.issue()
    found: list[object] = []
    cursor = None
    while True:
        asked = command(calls, "list_parked", limit=2, **({"cursor": cursor} if cursor else {}))
        result = apply(calls, asked)
        assert result.rows is not None
        found += [row["call_id"] for row in result.rows]
        cursor = result.next
        if cursor is None:
            break
    assert sorted(map(str, found)) == sorted(made)
    first = apply(calls, command(calls, "list_parked")).rows
    assert first is not None
    assert {"target": "erp POST /orders", "last_error": "503 for too long", "http_status": 503}.items() <= first[
        0
    ].items()


@pytest.mark.req("DEC-13", "DEC-27")
def test_rejected_notifications_are_listed_submitted_again_and_discarded(calls: Calls) -> None:
    one, two, three = rejected(calls), rejected(calls, "Wörk"), rejected(calls)
    listed = apply(calls, command(calls, "list_rejected", limit=2))
    assert listed.rows is not None
    assert len(listed.rows) == 2
    rest = apply(calls, command(calls, "list_rejected", limit=2, cursor=str(listed.next)))
    assert rest.rows is not None
    assert rest.next is None
    rows = {row["notification_id"]: row for row in (*listed.rows, *rest.rows)}
    assert set(rows) == {one, two, three}
    assert (rows[two]["subject"], rows[two]["list_name"], rows[two]["code"]) == ("Wörk", "ops", "list.unknown")
    asked = command(calls, "resubmit_rejected", one)
    assert [apply(calls, asked).outcome for _ in range(2)] == ["applied"] * 2
    (waiting,) = calls.buffer.take(calls.clock.now(), items_max=10, bytes_max=10_000)
    found = calls.buffer.find(one)
    assert found is not None
    assert (waiting.message_id, found.retry_count) == (one, 0)
    assert apply(calls, command(calls, "discard_rejected", two)).outcome == "applied"
    assert apply(calls, command(calls, "resubmit_rejected", two)).outcome == "not_parked"
    assert [message.message_id for message in calls.buffer.rejected()] == [three]
    assert (kinds(calls, one)[-1], kinds(calls, two)[-1]) == ("requeued", "discarded")


@pytest.mark.req("SF-20", "DEC-27")
def test_event_log_is_queried_by_its_filters(calls: Calls) -> None:
    one = calls.parked()
    calls.deliver(calls.issue())
    result = apply(calls, command(calls, "query_events", severity="error"))
    assert result.rows is not None
    assert [(row["kind"], row["message_id"]) for row in result.rows] == [("parked", one)]
    page = apply(calls, command(calls, "query_events", limit=1))
    assert page.rows is not None
    assert page.next is not None
    second = apply(calls, command(calls, "query_events", limit=1, cursor=page.next)).rows
    assert second is not None
    assert second[0]["sequence"] != page.rows[0]["sequence"]
    of_one = apply(calls, command(calls, "query_events", message_id=one)).rows
    assert of_one is not None
    assert {row["message_id"] for row in of_one} == {one}


def test_answer_is_limited_and_has_a_cursor(calls: Calls) -> None:
    entries = [event_log.event(event_log.SiteEventKind.PARKED, calls.clock.now(), "x" * 1000) for _ in range(500)]
    calls.buffer.write(lambda cursor: event_log.append(cursor, entries))
    result = apply(calls, command(calls, "query_events", limit=500))
    assert result.rows is not None
    assert 100 < len(result.rows) < 500
    assert result.next == str(result.rows[-1]["sequence"])


def test_applied_commands_are_deleted_long_after_central_stops_sending_them(calls: Calls) -> None:
    one = calls.parked()
    asked = command(calls, "retry", one)
    apply(calls, asked)
    assert command_log.RETENTION_DAYS >= 60
    calls.buffer.write(lambda cursor: command_log.purge(cursor, calls.clock.now()))
    calls.park(one)
    assert apply(calls, asked).outcome == "applied"
    assert isinstance(calls.clock, ManualClock)
    calls.clock.advance(1)
    assert calls.buffer.write(lambda cursor: command_log.purge(cursor, calls.clock.now())) == 1
