"""What a site tells of itself: its health, and its calls from a change on."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import fieldpost
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.sites.forwarding import Park
from fieldpost.core.times import to_microseconds
from fieldpost.link.messages import LinkMessage, Reconcile, TelemetryAck
from fieldpost.link.messages import Telemetry as TelemetryMessage
from fieldpost.site.config.options import ReportOptions
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.reporting.health import HealthReport
from fieldpost.site.reporting.telemetry import TelemetrySender
from fieldpost.testing import ManualClock
from support.calls import Calls


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def calls(tmp_path: Path, clock: ManualClock) -> Iterator[Calls]:
    opened = Calls(tmp_path / "buffer.db", clock)
    yield opened
    opened.close()


def notify(calls: Calls, message_id: str) -> None:
    calls.buffer.add(
        message_id=message_id,
        payload="{}",
        created_at=to_microseconds(calls.clock.now()),
    )


@pytest.mark.req("SF-21", "DEC-26")
def test_health_report_has_queue_parked_calls_and_state_of_forwarding(
    calls: Calls, clock: ManualClock, tmp_path: Path
) -> None:
    forwarding = ForwardHealth(False, "link.unreachable", "central cannot be reached", clock.now())
    report = HealthReport(calls.buffer, tmp_path, lambda: forwarding, clock)
    empty = report.make()
    assert (empty.backlog, empty.oldest_age_s, empty.parked, empty.rejected) == ({}, 0.0, 0, 0)
    notify(calls, "first")
    clock.advance(30)
    notify(calls, "second")
    calls.issue()
    calls.parked()
    clock.advance(30)
    told = report.make()
    assert told.backlog == {"notification": 2, "external_call": 1}
    assert (told.oldest_age_s, told.parked) == (60.0, 1)
    assert told.events["error"] == 1
    assert told.version == fieldpost.__version__
    assert told.disk_free_bytes is not None
    assert told.disk_free_bytes > 0
    assert (told.is_forwarding, told.forward_error, told.failing_for_s) == (False, forwarding.error, 60.0)
    assert told.uptime_s == 60
    clock.advance(3600)
    assert report.make().events == {}


def test_parked_calls_do_not_count_as_backlog(calls: Calls, clock: ManualClock, tmp_path: Path) -> None:
    calls.parked()
    clock.advance(86400)
    told = HealthReport(calls.buffer, tmp_path, ForwardHealth, clock).make()
    assert (told.backlog, told.oldest_age_s, told.parked) == ({"external_call": 0}, 0.0, 1)


@pytest.mark.req("TEL-03", "RES-38")
def test_answer_has_at_most_the_requested_rows_and_says_if_there_are_more(calls: Calls) -> None:
    made = [calls.issue() for _ in range(7)]
    first = calls.answer(Reconcile(0, 3))
    assert [row.call_id for row in first.rows] == made[:3]
    assert (first.until, first.high, first.has_more) == (3, 7, True)
    calls.deliver(made[0])
    rest = calls.answer(Reconcile(first.until, 500))
    assert [row.call_id for row in rest.rows] == [*made[3:], made[0]]
    assert (rest.until, rest.high, rest.has_more) == (8, 8, False)
    assert calls.answer(Reconcile(8)).rows == ()
    # Neither nothing nor everything may be asked for.
    assert len(calls.answer(Reconcile(0, 0)).rows) == 1
    assert len(calls.answer(Reconcile(0, 10**9)).rows) == 7


def test_rows_beyond_a_frame_are_reported_in_pieces(calls: Calls) -> None:
    for _ in range(300):
        calls.settle(calls.issue(), Park("\x01" * 2048))
    answer = calls.answer(Reconcile(0, 500))
    assert 50 < len(answer.rows) < 300
    assert answer.has_more
    assert len(answer.rows) + len(calls.answer(Reconcile(answer.until, 500)).rows) <= 300


class Line:
    """The control connection as telemetry sees it."""

    def __init__(self) -> None:
        self.sent: list[TelemetryMessage] = []
        self.telemetry: TelemetrySender | None = None
        self.is_open = True
        self.acks = True
        self.stands_at: int | None = None

    async def send(self, message: LinkMessage) -> None:
        if not self.is_open:
            raise Unavailable("link.not_connected", "there is no connection")
        assert isinstance(message, TelemetryMessage)
        self.sent.append(message)
        if self.acks and self.telemetry is not None:
            # As central does: what does not join on to where it stands is not taken.
            until = message.until if self.stands_at is None or message.after <= self.stands_at else self.stands_at
            self.telemetry.acked(TelemetryAck(until))

    def statuses(self) -> list[str]:
        return [row.status for told in self.sent for row in told.rows]


@pytest.mark.req("TEL-01")
async def test_telemetry_starts_after_reconciliation_and_reports_each_change_once(
    calls: Calls, clock: ManualClock
) -> None:
    line = Line()
    line.telemetry = telemetry = TelemetrySender(calls.tracking, line.send, clock)
    one = calls.issue()
    assert await telemetry.sweep() == 0
    telemetry.answer(Reconcile(0))
    calls.put_off(one)
    assert await telemetry.sweep() == 1
    assert await telemetry.sweep() == 0
    calls.park(one)
    calls.retry(one)
    await telemetry.sweep()
    assert line.statuses() == ["retrying", "retrying"]
    assert [(told.after, told.until) for told in line.sent] == [(1, 2), (2, 4)]


@pytest.mark.req("TEL-02", "TEL-04")
async def test_unacknowledged_changes_are_reported_again_and_nothing_waits_for_them(
    calls: Calls, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldpost.site.reporting.telemetry.ACK_S", 0.01)
    line = Line()
    line.telemetry = telemetry = TelemetrySender(calls.tracking, line.send, clock)
    telemetry.answer(Reconcile(0))
    line.acks = False
    calls.issue()
    assert await telemetry.sweep() == 0
    line.is_open = False
    with pytest.raises(Unavailable):
        await telemetry.sweep()
    calls.issue()
    line.is_open = line.acks = True
    assert await telemetry.sweep() == 2
    assert [len(told.rows) for told in line.sent] == [1, 2]


@pytest.mark.req("TEL-02", "TEL-04")
async def test_telemetry_resumes_at_the_cursor_of_central(calls: Calls, clock: ManualClock) -> None:
    line = Line()
    line.telemetry = telemetry = TelemetrySender(calls.tracking, line.send, clock)
    first, _ = calls.issue(), calls.issue()
    telemetry.answer(Reconcile(0))
    line.stands_at = 1
    calls.deliver(first)
    await telemetry.sweep()
    assert [(told.after, told.until) for told in line.sent] == [(2, 3), (1, 3)]


async def test_telemetry_can_be_switched_off(calls: Calls, clock: ManualClock) -> None:
    line = Line()
    line.telemetry = telemetry = TelemetrySender(calls.tracking, line.send, clock, is_on=False)
    telemetry.answer(Reconcile(0))
    calls.issue()
    assert await telemetry.sweep() == 0
    assert line.sent == []
    assert len(telemetry.answer(Reconcile(0)).rows) == 1


@pytest.mark.parametrize("given", [{"health_interval_s": 0}, {"poll_s": 100}, {"telemetry": "yes"}])
def test_setting_out_of_range_is_rejected_by_name(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as raised:
        ReportOptions(**given)  # type: ignore[arg-type]
    assert raised.value.field == next(iter(given))
    assert timedelta(seconds=ReportOptions().health_interval_s) == timedelta(seconds=30)
