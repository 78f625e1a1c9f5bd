"""The buffer against a model: a list of rows, a box, and one rule for what is due."""

import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fieldpost.core.forwarding import Box, Clear, Decision, TryAgain, is_due
from fieldpost.core.ids import new_id
from fieldpost.core.message import Category, Message, MessageStatus, RejectedMessage
from fieldpost.site.buffer import Buffer

START = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
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
            category=Category.NOTIFICATION,
            target="central",
            payload=payload,
            created_at=self.now,
        )
        self.rows.append(row)

    @rule(items_max=st.integers(1, 6), bytes_max=st.integers(1, 150), data=st.data())
    def sweep(self, items_max: int, bytes_max: int, data: st.DataObject) -> None:
        taken = self.buffer.take(Category.NOTIFICATION, self.now, items_max=items_max, bytes_max=bytes_max)
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
