"""A site's real buffer whose cached calls are moved on as scripts, carriers and operators would, without any target."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from fieldpost.clock import Clock
from fieldpost.core.ids import CallId, new_id
from fieldpost.core.notification import Provenance
from fieldpost.core.sites.forwarding import CallDecision, Clear, Fail, Park, TryAgain
from fieldpost.core.sites.message import CallRecord, Category, Message, NewCall
from fieldpost.link.messages import Reconcile, ReconcileAnswer
from fieldpost.link.messages import Telemetry as TelemetryMessage
from fieldpost.site.buffer import calls as stored_calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.reporting.telemetry import TelemetrySender

MINUTE = timedelta(minutes=1)


class Calls:
    """One site's buffer and its cached calls."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.buffer = Buffer(path)
        self.tracking = Tracking(self.buffer.read)
        self._held: dict[str, Message] = {}

    def issue(self, target: str = "erp", category: Category = Category.EXTERNAL_CALL) -> str:
        """A call that its script has just made: `pending`."""
        now = self.clock.now()
        operation = NewCall(
            call_id=CallId(new_id(now, os.urandom(10))),
            category=category,
            target=target,
            target_summary=f"{target} POST /orders" if category is Category.EXTERNAL_CALL else target,
            payload="{}",
            provenance=Provenance("plant-7", "pump-3", "orders.py", "run-1", "run-0"),
            created_at=now,
        )
        issued = self.buffer.issue(operation, claimant="script", until=now + MINUTE)
        assert issued.message is not None
        self._held[operation.call_id] = issued.message
        return operation.call_id

    def settle(self, call_id: str, decision: CallDecision) -> None:
        """What came of an attempt."""
        message = self._held.pop(call_id, None) or self._claim(call_id)
        assert self.buffer.write(stored_calls.settle, message, decision, self.clock.now()) is not None

    def deliver(self, call_id: str) -> None:
        self.settle(call_id, Clear(201))

    def fail(self, call_id: str) -> None:
        self.settle(call_id, Fail("external.refused", "400 no such order", 400))

    def put_off(self, call_id: str) -> None:
        # Due at once, so that the next attempt can be made without waiting.
        self.settle(call_id, TryAgain(self.clock.now(), "503 later", http_status=503))

    def park(self, call_id: str) -> None:
        self.settle(call_id, Park("503 for too long", http_status=503))

    def parked(self, target: str = "erp") -> str:
        """A call that has parked."""
        call_id = self.issue(target)
        self.park(call_id)
        return call_id

    def retry(self, call_id: str) -> None:
        assert self.buffer.retry(call_id, self.clock.now())

    def discard(self, call_id: str) -> None:
        assert self.buffer.discard(call_id, self.clock.now())

    def record(self, call_id: str) -> CallRecord:
        found = self.tracking.find(call_id)
        assert found is not None
        return found

    def told(self, after: int = 0) -> TelemetryMessage:
        """All that changed after this change, as telemetry tells it."""
        answer = self.answer(Reconcile(after))
        return TelemetryMessage(
            incarnation=answer.incarnation,
            after=answer.after,
            until=answer.until,
            sent_at=answer.sent_at,
            rows=answer.rows,
            forgotten=answer.forgotten,
        )

    def answer(self, asked: Reconcile) -> ReconcileAnswer:
        """What the site's own code answers."""

        async def nobody(message: object) -> None:
            raise AssertionError(f"an answer sends nothing of itself, but {message}")

        return TelemetrySender(self.tracking, nobody, self.clock).answer(asked)

    def close(self) -> None:
        self.buffer.close()

    def _claim(self, call_id: str) -> Message:
        now = self.clock.now()
        target = self.record(call_id).target_summary.split()[0]
        category = self.record(call_id).category
        held = self.buffer.write(
            stored_calls.claim, category, target, now, claimant="agent", until=now + MINUTE, items_max=100
        )
        self.buffer.write(stored_calls.release, [message for message in held if message.message_id != call_id])
        return next(message for message in held if message.message_id == call_id)


def changes_of(calls: Calls) -> Iterator[tuple[str, str]]:
    """Every transition that a call can go through: the call and the status it has then."""
    for end in (calls.deliver, calls.fail):
        one = calls.issue()
        yield one, "pending"
        end(one)
        yield one, calls.record(one).status.value
    one = calls.issue("erp", Category.DATABASE_WRITE)
    calls.put_off(one)
    yield one, "retrying"
    calls.put_off(one)
    yield one, "retrying"
    calls.park(one)
    yield one, "parked"
    calls.retry(one)
    yield one, "retrying"
    calls.deliver(one)
    yield one, "delivered"
    given_up = calls.parked()
    yield given_up, "parked"
    calls.discard(given_up)
    yield given_up, "discarded"
