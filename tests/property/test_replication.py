"""Two buffers of a pair under random work, lost and doubled batches, failovers and snapshots.

Whatever happened before: once both nodes have exchanged their changes, they have the same rows, every call that a
script issued has one record, and no call continues that one of the nodes has delivered.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fieldpost.core.pair.numbering import next_epoch
from fieldpost.core.sites.message import Message
from fieldpost.link.pair_rows import ChangeBatch
from fieldpost.site.buffer.pair import pair_state, replication
from support.pair_buffers import copy_both_ways, differing, pair_buffers, take_snapshot

pytestmark = [pytest.mark.req("DEC-41", "REP-04"), pytest.mark.fault(10)]

MEMORY = Path("/dev/shm")
"""Thousands of commits: no disk is needed to show in which order they come."""
NODES = st.sampled_from((0, 1))


class Replication(RuleBasedStateMachine):
    """Scripts on both nodes, the leader's agent, and the link between the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self._open = pair_buffers(Path(self._folder.name))
        self.nodes = self._open.__enter__()
        self.in_flight: list[tuple[int, Message]] = []
        self.batches: list[tuple[int, ChangeBatch]] = []
        self.sent: list[set[str]] = [set(), set()]
        self.keys = 0
        self.issued: set[str] = set()
        self.delivered: set[str] = set()
        self.numbers: list[tuple[int, int]] = [(0, 0), (0, 0)]

    @initialize()
    def begin(self) -> None:
        self._watch_numbers()

    @property
    def leader(self) -> int:
        return max((0, 1), key=lambda node: self.nodes[node].state.held)

    @rule(node=NODES, has_key=st.booleans())
    def send(self, node: int, has_key: bool) -> None:
        self.keys += 1
        key = f"key-{self.keys}" if has_key else None
        self.sent[node].add(self.nodes[node].send(key=key))
        self._watch_numbers()

    @rule(node=NODES, data=st.data())
    def ack(self, node: int, data: st.DataObject) -> None:
        if self.sent[node]:
            message_id = data.draw(st.sampled_from(sorted(self.sent[node])))
            self.nodes[node].ack(message_id)
            self.sent[node].discard(message_id)
            self._watch_numbers()

    @rule(node=NODES)
    def issue(self, node: int) -> None:
        message = self.nodes[node].issue()
        self.issued.add(message.message_id)
        self.in_flight.append((node, message))
        self._watch_numbers()

    @rule()
    def claim(self) -> None:
        self.in_flight += [(self.leader, message) for message in self.nodes[self.leader].claim(2)]

    @rule(data=st.data(), result=st.sampled_from(("delivered", "retrying", "parked")))
    def settle(self, data: st.DataObject, result: str) -> None:
        if self.in_flight:
            node, message = data.draw(st.sampled_from(self.in_flight))
            self.in_flight.remove((node, message))
            if self.nodes[node].settle(message, result) and result == "delivered":
                self.delivered.add(message.message_id)
            self._watch_numbers()

    @rule(seconds=st.sampled_from((1, 30)))
    def let_time_pass(self, seconds: int) -> None:
        for node in self.nodes:
            node.now += timedelta(seconds=seconds)

    @rule(node=NODES, items_max=st.sampled_from((1, 3, 500)))
    def read_batch(self, node: int, items_max: int) -> None:
        batch = self.nodes[node].batch(self.nodes[1 - node].received, items_max=items_max)
        if batch is not None:
            self.batches.append((node, batch))

    @rule(data=st.data(), is_kept=st.booleans())
    def apply_batch(self, data: st.DataObject, is_kept: bool) -> None:
        if self.batches:
            node, batch = data.draw(st.sampled_from(self.batches[-6:]))
            if not is_kept:
                self.batches.remove((node, batch))
            if batch.known >= self.nodes[1 - node].state.known:
                self.nodes[1 - node].apply(batch)
                self._watch_numbers()

    @rule()
    def fail_over(self) -> None:
        standby = self.nodes[1 - self.leader]
        standby.lead(next_epoch(standby.node, max(node.state.known for node in self.nodes)))
        self._watch_numbers()

    @rule(node=NODES)
    def prune(self, node: int) -> None:
        self.nodes[node].buffer.write(replication.prune)
        self._watch_numbers()

    @rule(items_max=st.sampled_from((1, 500)))
    def take_snapshot(self, items_max: int) -> None:
        standby = 1 - self.leader
        self.nodes[standby].buffer.write(pair_state.learn_epoch, self.nodes[self.leader].state.known)
        take_snapshot(self.nodes[self.leader], self.nodes[standby], items_max)
        self._watch_numbers()

    @rule()
    def exchange_everything(self) -> None:
        copy_both_ways(*self.nodes)
        assert differing(*self.nodes) == []
        for node in self.nodes:
            rows = dict(node.rows("SELECT call_id, status FROM tracking"))
            assert set(rows) == self.issued
            assert {one for one, status in rows.items() if status == "delivered"} == self.delivered
            calls = {one for (one,) in node.rows("SELECT message_id FROM calls")}
            assert calls == self.issued - self.delivered
            own = {one for (one,) in node.rows("SELECT message_id FROM messages WHERE status <> 'marker'")}
            assert own == self.sent[node.node]
        self._watch_numbers()

    def _watch_numbers(self) -> None:
        """Numbers of a node only grow."""
        for place, node in enumerate(self.nodes):
            position = node.buffer.read(replication.position)
            before, self.numbers[place] = self.numbers[place], (position.messages, position.changes)
            assert before <= self.numbers[place]
            assert before[1] <= position.changes

    def teardown(self) -> None:
        try:
            copy_both_ways(*self.nodes)
            assert differing(*self.nodes) == []
        finally:
            self._open.__exit__(None, None, None)
            self._folder.cleanup()


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=25, stateful_step_count=50)
