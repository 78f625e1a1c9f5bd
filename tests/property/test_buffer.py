"""The buffer against two models: of notifications (rows, a box, what is due) and of cached calls (claims, records)."""

import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fieldpost.core.ids import CallId, new_id
from fieldpost.core.notification import Provenance
from fieldpost.core.sites.forwarding import (
    CALL_WAIT_MAX,
    Box,
    CallDecision,
    Clear,
    Decision,
    Fail,
    Park,
    TryAgain,
    is_due,
)
from fieldpost.core.sites.message import CallStatus, Category, Message, MessageStatus, NewCall, RejectedMessage
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer import calls as stored_calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.calls import CLAIM_MAX
from fieldpost.site.buffer.tracking import Tracking

START = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
systems = st.sampled_from(["erp", "mes", "scada"])
payloads = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)


@dataclass
class Row:
    message_id: str
    payload: str
    created_at: datetime
    retry_count: int = 0
    due_at: datetime | None = None
    error: str | None = None


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fieldpost-buffer-"))
        self.buffer = Buffer(self.folder / "buffer.db")
        self.now = START
        self.made = 0
        self.rows: list[Row] = []
        self.box: dict[str, tuple[Row, str]] = {}
        self.gone: list[str] = []

    def teardown(self) -> None:
        self.buffer.close()
        shutil.rmtree(self.folder)

    @rule(payload=payloads)
    def add(self, payload: str) -> None:
        self.made += 1
        row = Row(new_id(START, self.made.to_bytes(5, "big") * 2), payload, self.now)
        self.buffer.add(
            message_id=row.message_id,
            payload=payload,
            created_at=to_microseconds(self.now),
        )
        self.rows.append(row)

    @rule(items_max=st.integers(1, 6), bytes_max=st.integers(1, 150), data=st.data())
    def sweep(self, items_max: int, bytes_max: int, data: st.DataObject) -> None:
        taken = self.buffer.take(self.now, items_max=items_max, bytes_max=bytes_max)
        due = [row for row in self.rows if is_due(row.due_at, self.now)]
        assert [message.message_id for message in taken] == [row.message_id for row in due[: len(taken)]]
        assert len(taken) <= items_max
        assert bool(taken) == bool(due)
        sizes = [len(row.payload.encode()) for row in due]
        assert len(taken) <= 1 or sum(sizes[: len(taken)]) <= bytes_max
        if len(taken) < min(len(due), items_max):
            assert sum(sizes[: len(taken) + 1]) > bytes_max
        self.settle(taken, data)

    def settle(self, taken: list[Message], data: st.DataObject) -> None:
        decisions: list[tuple[str, Decision]] = []
        for message in taken:
            row = next(row for row in self.rows if row.message_id == message.message_id)
            match data.draw(st.sampled_from(["clear", "box", "again"])):
                case "clear":
                    decisions.append((message.message_id, Clear()))
                    self.rows.remove(row)
                    self.gone.append(row.message_id)
                case "box":
                    decisions.append((message.message_id, Box("a.code", "an error")))
                    self.rows.remove(row)
                    self.box[row.message_id] = row, "a.code"
                case _:
                    row.due_at = self.now + timedelta(seconds=data.draw(st.integers(1, 3600)))
                    row.retry_count += 1
                    row.error = "not now"
                    decisions.append((message.message_id, TryAgain(row.due_at, "not now")))
        self.buffer.settle(decisions, self.now)

    @rule(seconds=st.integers(-10_000, 10_000))
    def move_the_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def restart(self) -> None:
        self.buffer.close()
        self.buffer = Buffer(self.folder / "buffer.db")

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        for row in self.rows:
            found = self.buffer.find(row.message_id)
            assert isinstance(found, Message)
            assert found.status is (MessageStatus.RETRYING if row.retry_count else MessageStatus.PENDING)
            assert (found.payload, found.retry_count, found.due_at, found.last_error, found.created_at) == (
                row.payload,
                row.retry_count,
                row.due_at,
                row.error,
                row.created_at,
            )
        for message_id, (row, code) in self.box.items():
            boxed = self.buffer.find(message_id)
            assert isinstance(boxed, RejectedMessage)
            assert (boxed.payload, boxed.code, boxed.retry_count) == (row.payload, code, row.retry_count)
        for message_id in self.gone:
            assert self.buffer.find(message_id) is None

    @invariant()
    def the_depth_counts_what_waits(self) -> None:
        depth = self.buffer.depth()
        assert depth.waiting.get(Category.NOTIFICATION, 0) == len(self.rows)
        assert depth.rejected == len(self.box)
        assert depth.oldest_created_at == (self.rows[0].created_at if self.rows else None)


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@dataclass
class Call:
    """An operation as the model has it."""

    call_id: str
    target: str
    sequence: int
    status: CallStatus = CallStatus.PENDING
    retry_count: int = 0
    error: str | None = None
    due_at: datetime | None = None
    token: int = 1
    claimed_until: datetime | None = None
    version: int = 1
    is_parked: bool = False

    @property
    def is_buffered(self) -> bool:
        return not self.status.is_terminal

    def is_free(self, now: datetime) -> bool:
        if not self.is_buffered or self.is_parked or not is_due(self.due_at, now, CALL_WAIT_MAX):
            return False
        return self.claimed_until is None or self.claimed_until <= now or self.claimed_until > now + CLAIM_MAX


class CallMachine(RuleBasedStateMachine):
    """Cached calls: issued, claimed, settled by who holds them and by who no longer does, retried, discarded."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fieldpost-calls-"))
        self.buffer = Buffer(self.folder / "buffer.db")
        self.now = START
        self.calls: dict[str, Call] = {}
        self.handed: list[Message] = []
        self.changes = 0

    def teardown(self) -> None:
        self.buffer.close()
        shutil.rmtree(self.folder)

    @rule(system=systems, claim_s=st.integers(0, 100))
    def issue(self, system: str, claim_s: int) -> None:
        number = len(self.calls) + 1
        operation = NewCall(
            call_id=CallId(new_id(START, number.to_bytes(5, "big") * 2)),
            category=Category.EXTERNAL_CALL,
            target=system,
            target_summary=system,
            payload="{}",
            provenance=Provenance("site"),
            created_at=self.now,
        )
        until = self.now + timedelta(seconds=claim_s)
        issued = self.buffer.issue(operation, claimant="caller", until=until)
        assert issued.message is not None
        self.calls[operation.call_id] = Call(operation.call_id, system, issued.message.sequence, claimed_until=until)
        self.handed.append(issued.message)
        self.changes += 1

    @rule(system=systems, items_max=st.integers(1, 4), claim_s=st.integers(0, 100))
    def claim(self, system: str, items_max: int, claim_s: int) -> None:
        until = self.now + timedelta(seconds=claim_s)
        taken = self.buffer.write(
            stored_calls.claim,
            Category.EXTERNAL_CALL,
            system,
            self.now,
            claimant="agent",
            until=until,
            items_max=items_max,
        )
        for call in self.calls.values():
            if call.target == system and call.due_at is not None and call.due_at > self.now + CALL_WAIT_MAX:
                call.due_at = None if call.is_buffered and not call.is_parked else call.due_at
        free = [call for call in self.calls.values() if call.target == system and call.is_free(self.now)]
        free.sort(key=lambda call: (call.due_at or datetime.min.replace(tzinfo=UTC), call.sequence))
        assert {message.message_id for message in taken} == {call.call_id for call in free[:items_max]}
        for message in taken:
            call = self.calls[message.message_id]
            call.token += 1
            call.claimed_until = until
            assert message.claim_token == call.token
            self.handed.append(message)

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), is_counted=st.booleans(), decision=st.sampled_from(["clear", "again", "park", "fail"]))
    def settle(self, data: st.DataObject, is_counted: bool, decision: str) -> None:
        message = data.draw(st.sampled_from(self.handed))
        call = self.calls[message.message_id]
        due_at = self.now + timedelta(seconds=data.draw(st.integers(1, 86_400)))
        decisions: dict[str, CallDecision] = {
            "clear": Clear(200),
            "again": TryAgain(due_at, "not now", is_counted),
            "park": Park("used up", is_counted),
            "fail": Fail("a.code", "refused"),
        }
        record = self.buffer.write(stored_calls.settle, message, decisions[decision], self.now)
        holds = call.is_buffered and call.claimed_until is not None and call.token == message.claim_token
        assert (record is not None) == holds, "only the claim that stands settles"
        if not holds:
            return
        call.claimed_until = None
        call.version += 1
        self.changes += 1
        match decision:
            case "clear":
                call.status = CallStatus.DELIVERED
            case "fail":
                call.status, call.error = CallStatus.FAILED, "refused"
            case "again":
                call.status, call.error, call.due_at = CallStatus.RETRYING, "not now", due_at
                call.retry_count += is_counted
            case _:
                call.status, call.error, call.due_at = CallStatus.PARKED, "used up", None
                call.retry_count += is_counted
                call.is_parked = True

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.handed))
        self.buffer.write(stored_calls.release, [message])
        call = self.calls[message.message_id]
        if call.token == message.claim_token:
            call.claimed_until = None

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), act=st.sampled_from(["retry", "discard"]))
    def operate(self, data: st.DataObject, act: str) -> None:
        call = data.draw(st.sampled_from(list(self.calls.values())))
        if act == "retry":
            assert self.buffer.retry(call.call_id, self.now) == call.is_parked
        else:
            assert self.buffer.discard(call.call_id, self.now) == call.is_parked
        if not call.is_parked:
            return
        call.is_parked = False
        call.version += 1
        self.changes += 1
        if act == "retry":
            call.status, call.retry_count, call.error, call.due_at = CallStatus.RETRYING, 0, None, None
        else:
            call.status = CallStatus.DISCARDED

    @rule(seconds=st.one_of(st.integers(-200, 200), st.integers(-300_000, 300_000)))
    def move_the_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def restart(self) -> None:
        self.buffer.close()
        self.buffer = Buffer(self.folder / "buffer.db")

    @invariant()
    def record_and_message_are_what_the_model_has(self) -> None:
        tracking = Tracking(self.buffer.read)
        for call in self.calls.values():
            record = tracking.status(call.call_id)
            assert (record.status, record.version, record.retry_count, record.last_error) == (
                call.status,
                call.version,
                call.retry_count,
                call.error,
            )
            assert (record.terminal_at is not None) == call.status.is_terminal
            message = self.buffer.find(call.call_id)
            assert (message is not None) == call.is_buffered, "a row ends with its operation"
            if message is not None:
                assert isinstance(message, Message)
                assert (message.status is MessageStatus.PARKED) == call.is_parked
                assert (message.retry_count, message.due_at) == (call.retry_count, call.due_at)
                assert message.claim_token == call.token

    @invariant()
    def the_change_sequence_counts_every_change_once(self) -> None:
        tracking = Tracking(self.buffer.read)
        sequences = [record.change_sequence for record in tracking.changed_since(0, 1000)]
        assert sequences == sorted(set(sequences))
        assert len(sequences) == len(self.calls)
        assert tracking.last_change() == self.changes

    @invariant()
    def the_due_targets_are_those_with_something_free(self) -> None:
        found = self.buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, self.now)
        far = {
            call.target
            for call in self.calls.values()
            if call.is_buffered and not call.is_parked and call.due_at and call.due_at > self.now + CALL_WAIT_MAX
        }
        assert set(found) == {call.target for call in self.calls.values() if call.is_free(self.now)} | far


TestCalls = CallMachine.TestCase
TestCalls.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
