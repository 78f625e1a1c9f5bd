"""The mirror against a site that changes, forgets, is replaced and restored, over a line that loses and doubles.

Whatever happened before: once central has asked to the end, the mirror says of every call what the site says, and calls
that the site does not know are live no more.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fieldpost.core.sites.call_mirror import (
    BufferPosition,
    Mirror,
    Stretch,
    apply_answer,
    apply_telemetry,
    ended_round,
    is_contiguous,
    wins,
)
from fieldpost.core.sites.message import CallStatus as Status
from support.sample import NOW

pytestmark = [pytest.mark.req("TEL-02", "TEL-04", "DEC-29", "RES-36", "RES-38")]

SITE = "plant-7"
FOLLOWS = {
    Status.PENDING: (Status.RETRYING, Status.DELIVERED, Status.FAILED, Status.PARKED),
    Status.RETRYING: (Status.RETRYING, Status.DELIVERED, Status.PARKED),
    Status.PARKED: (Status.RETRYING, Status.DISCARDED),
}


@dataclass
class Call:
    status: Status
    version: int
    change: int


@dataclass
class Buffer:
    """A site's tracking table."""

    incarnation: str
    high: int = 0
    forgotten: int = 0
    calls: dict[int, Call] = field(default_factory=dict)

    def changed(
        self, after: int, limit: int, heard_of: int = 0
    ) -> tuple[Stretch, BufferPosition, list[tuple[int, Status, int]]]:
        found = sorted((c.change, name) for name, c in self.calls.items() if c.change > after)
        shown = found[:limit]
        has_more = len(found) > limit
        until = shown[-1][0] if has_more else max(self.high, 0)
        rows = [(name, self.calls[name].status, self.calls[name].version) for _, name in shown]
        return (
            Stretch(self.incarnation, after, until, self.forgotten),
            BufferPosition(self.high, has_more, self.high < heard_of),
            rows,
        )

    def copy(self) -> "Buffer":
        calls = {name: Call(c.status, c.version, c.change) for name, c in self.calls.items()}
        return Buffer(self.incarnation, self.high, self.forgotten, calls)


@dataclass
class Row:
    status: Status
    order: tuple[int, int]
    is_gone: bool = False


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer("incarnation-0")
        self.copies: list[Buffer] = []
        self.names = 0
        self.incarnations = 0
        self.told_to = 0
        self.frames: list[tuple[Stretch, list[tuple[int, Status, int]]]] = []
        self.mirror: Mirror | None = None
        self.rows: dict[int, Row] = {}

    @rule()
    def issue(self) -> None:
        self.names += 1
        self.buffer.high += 1
        self.buffer.calls[self.names] = Call(Status.PENDING, 1, self.buffer.high)

    @rule(chance=st.randoms(use_true_random=False))
    def change(self, chance: random.Random) -> None:
        live = [name for name, call in self.buffer.calls.items() if call.status in FOLLOWS]
        if live:
            call = self.buffer.calls[chance.choice(live)]
            self.buffer.high += 1
            call.status = chance.choice(FOLLOWS[call.status])
            call.version += 1
            call.change = self.buffer.high

    @rule()
    def purge(self) -> None:
        for name, call in list(self.buffer.calls.items()):
            if call.status.is_terminal:
                self.buffer.forgotten = max(self.buffer.forgotten, call.change)
                del self.buffer.calls[name]

    @rule()
    def tell(self) -> None:
        """The site sends telemetry; it is on its way."""
        stretch, _, rows = self.buffer.changed(self.told_to, 500)
        self.told_to = stretch.until
        self.frames.append((stretch, rows))

    @precondition(lambda self: self.frames)
    @rule(chance=st.randoms(use_true_random=False), keep=st.booleans())
    def arrive(self, chance: random.Random, keep: bool) -> None:
        """Any frame, in any order, and perhaps once more later."""
        at = chance.randrange(len(self.frames))
        stretch, rows = self.frames[at] if keep else self.frames.pop(at)
        self.mirror = apply_telemetry(self.mirror, SITE, stretch, NOW)
        self.apply(self.mirror, stretch, rows)
        self.told_to = min(self.mirror.cursor, stretch.until)

    @precondition(lambda self: self.frames)
    @rule()
    def lose(self) -> None:
        self.frames.pop()

    @rule(limit=st.integers(1, 4))
    def ask_once(self, limit: int) -> None:
        """A reconciliation that breaks off after one answer."""
        self.ask(limit)

    @rule()
    def back_up(self) -> None:
        self.copies.append(self.buffer.copy())

    @rule()
    def replace(self) -> None:
        """Another file: the agent is started anew, so what was on its way is lost with the connection."""
        self.incarnations += 1
        self.buffer = Buffer(f"incarnation-{self.incarnations}")
        self.copies.clear()
        self.frames.clear()
        self.told_to = 0

    @precondition(lambda self: self.copies)
    @rule()
    def restore(self) -> None:
        """The same file as it was; central notices when it asks before the site has caught up again."""
        self.buffer = self.copies.pop()
        self.frames.clear()
        self.reconcile(3)
        self.told_to = self.buffer.high

    @invariant()
    def asked_to_the_end_the_mirror_says_what_the_site_says(self) -> None:
        before = (self.mirror, {name: Row(r.status, r.order, r.is_gone) for name, r in self.rows.items()})
        self.reconcile(2)
        for name, call in self.buffer.calls.items():
            assert (self.rows[name].status, self.rows[name].is_gone) == (call.status, False)
        for name, row in self.rows.items():
            if name not in self.buffer.calls:
                assert row.status.is_terminal or row.is_gone
        self.mirror, self.rows = before

    def reconcile(self, limit: int) -> None:
        for _ in range(2 * len(self.buffer.calls) + 5):
            if self.ask(limit):
                return
        raise AssertionError("the questions did not come to an end")

    def ask(self, limit: int) -> bool:
        before = self.mirror
        cursor, high = (before.cursor, before.high) if before else (0, 0)
        stretch, standing, rows = self.buffer.changed(cursor, limit, high)
        self.mirror, is_whole = apply_answer(before, SITE, stretch, standing, NOW)
        self.apply(self.mirror, stretch, rows)
        if ended_round(before, self.mirror, is_whole):
            for row in self.rows.values():
                if row.order[0] < self.mirror.round and not row.status.is_terminal:
                    row.is_gone = True
        return is_whole

    def apply(self, mirror: Mirror, stretch: Stretch, rows: list[tuple[int, Status, int]]) -> None:
        for name, status, version in rows if is_contiguous(mirror, stretch) else []:
            known = self.rows.get(name)
            if wins((mirror.round, version), known.order if known else None):
                self.rows[name] = Row(status, (mirror.round, version))


TestConversation = Conversation.TestCase
