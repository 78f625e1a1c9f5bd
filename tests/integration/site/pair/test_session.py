"""The exchange between two nodes of a pair, over a line that is cut at any message."""

from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import apsw
import msgspec
import pytest

from fieldpost.core.errors import Conflict, InvalidInput, Unavailable
from fieldpost.link.codec import encode
from fieldpost.link.pair_messages import PairHello, PairRefusal, decode_pair
from fieldpost.link.pair_rows import ROW_KINDS
from fieldpost.site.buffer import tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.pair.session import PairSession
from support.disks import PowerDisk
from support.pair_buffers import NodeBuffer, differing, leadership_of, pair_buffers

SITE = "plant-7"
Nodes = tuple[NodeBuffer, NodeBuffer]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with pair_buffers(tmp_path) as found:
        yield found


class Cut(Exception):
    """The connection broke; the message on the way may have arrived."""


class Line:
    """A connection between the two nodes."""

    def __init__(
        self, nodes: Nodes, *, random: Random | None = None, cut_share: float = 0.0, items_max: int = 500
    ) -> None:
        self.sessions = [
            PairSession(node.buffer, SITE, partial(_now, node), leadership_of(node), items_max=items_max)
            for node in nodes
        ]
        self._random = random or Random(0)
        self._cut_share = cut_share
        for place in (0, 1):
            self.carry(place, self.sessions[place].greeting())

    def carry(self, source: int, data: bytes | None) -> None:
        """Bring a message to the other node, and its answer back."""
        while data is not None:
            is_cut = self._random.random() < self._cut_share
            if is_cut and self._random.random() < 0.5:
                raise Cut
            data = self.sessions[1 - source].receive(data)
            if is_cut:
                raise Cut
            source = 1 - source

    def run(self) -> None:
        """Exchange messages until neither node has one."""
        while True:
            messages = [session.next_message() for session in self.sessions]
            if messages == [None, None]:
                return
            for place, message in enumerate(messages):
                self.carry(place, message)

    def check(self, place: int = 0) -> None:
        """Compare the ranges of a node and copy again those that differ."""
        self.sessions[place].checks.begin()
        self.run()


def _now(node: NodeBuffer) -> datetime:
    return node.now


def work_on(nodes: Nodes, random: Random) -> None:
    for node in nodes:
        sent = [node.send(key=random.choice((None, f"k{random.random()}"))) for _ in range(random.randrange(6))]
        node.ack(*sent[::2])
        for _ in range(random.randrange(4)):
            node.settle(node.issue(), random.choice(("delivered", "retrying", "parked")))


@pytest.mark.req("REP-04", "DEC-87")
def test_both_nodes_have_the_same_rows_after_the_exchange(nodes: Nodes) -> None:
    work_on(nodes, Random(7))
    line = Line(nodes)
    assert line.sessions[0].lag() > 0
    line.run()
    assert differing(*nodes) == []
    assert [session.lag() for session in line.sessions] == [0, 0]


@pytest.mark.fault(10)
@pytest.mark.parametrize("seed", range(12))
def test_line_that_breaks_at_any_message_loses_nothing(nodes: Nodes, seed: int) -> None:
    random = Random(seed)
    for _ in range(8):
        work_on(nodes, random)
        try:
            Line(nodes, random=random, cut_share=0.3, items_max=2).run()
        except Cut:
            continue
    Line(nodes).run()
    assert differing(*nodes) == []


@pytest.mark.req("DEC-28")
def test_gap_is_repaired_by_a_snapshot_in_pieces(nodes: Nodes) -> None:
    leader, standby = nodes
    gone = leader.issue()
    Line(nodes).run()
    leader.settle(gone, "delivered")
    for _ in range(9):
        leader.issue()
    leader.buffer.write(tracking.purge, leader.now + timedelta(days=1))
    leader.issue()
    leader.prune(changes_max=2)
    line = Line(nodes, items_max=2)
    line.run()
    assert line.sessions[0].snapshots == 1
    assert line.sessions[0].checks.compared == len(ROW_KINDS), "all rows are compared after a snapshot"
    assert differing(*nodes) == []
    assert (gone.message_id,) not in standby.rows("SELECT call_id FROM tracking")


def test_answers_to_pieces_of_a_snapshot_cost_the_leader_no_commit(nodes: Nodes) -> None:
    leader, _ = nodes
    for _ in range(20):
        leader.issue()
    leader.buffer.write(pair_state.set_pruned, leader.buffer.read(replication.position).changes)
    line = Line(nodes, items_max=2)
    _, before = leader.buffer.change_mark()
    line.run()
    assert line.sessions[0].snapshots == 1
    assert leader.buffer.change_mark()[1] - before <= 3, "a script would wait for each of them"


def test_standby_whose_changes_were_pruned_hands_over_its_existing_rows(nodes: Nodes) -> None:
    leader, standby = nodes
    removed, kept = standby.send(), standby.send()
    Line(nodes).run()
    standby.ack(removed)
    call = standby.issue()
    standby.prune(changes_max=0)
    line = Line(nodes)
    line.run()
    assert line.sessions[1].snapshots == 1
    assert differing(*nodes) == []
    assert leader.rows("SELECT message_id FROM copies") == [(kept,)]
    assert leader.rows("SELECT message_id FROM calls") == [(call.message_id,)]


def test_range_that_differs_is_copied_again_and_counted(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.send()
    leader.issue()
    line = Line(nodes)
    line.run()
    line.check()
    assert line.sessions[0].checks.repaired == 0
    for statement in ("UPDATE copies SET payload = 'x'", "DELETE FROM calls"):
        standby.buffer.write(lambda cursor, text=statement: cursor.execute(text).fetchall())  # type: ignore[misc]
    standby.buffer.write(lambda cursor: cursor.execute("DELETE FROM changes WHERE kind = 'call'").fetchall())
    line.check()
    assert line.sessions[0].checks.repaired == 2
    assert differing(*nodes) == []


@pytest.mark.needs("mount")
@pytest.mark.req("REP-04")
def test_acknowledged_changes_survive_a_power_cut_of_the_standby(tmp_path: Path) -> None:
    with PowerDisk(tmp_path) as disk:
        leader = NodeBuffer(tmp_path / "a", 0)
        standby = NodeBuffer(disk.path / "b", 1, Tracking(leader.buffer.read).incarnation())
        leader.lead(2)
        standby.buffer.write(pair_state.learn_epoch, 2)
        sent, call = leader.send(), leader.issue()
        line = Line((leader, standby))
        line.run()
        assert line.sessions[0].lag() == 0
        disk.cut()
        with suppress(Unavailable, apsw.Error):
            standby.buffer.close()
        disk.restart()
        with closing(Buffer(disk.path / "b" / "buffer.db")) as buffer:
            found = buffer.read(lambda cursor: cursor.execute("SELECT message_id FROM copies").fetchall())
            assert found == [(sent,)]
            assert buffer.read(pair_state.received) == leader.buffer.read(replication.position)
            assert buffer.find(call.message_id) is not None
        leader.buffer.close()


@pytest.mark.req("REP-04")
def test_standby_compares_its_own_notifications_with_their_copies(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.send()
    kept, changed = standby.send(), standby.send()
    line = Line(nodes)
    line.run()
    text = f"UPDATE copies SET payload = 'x' WHERE message_id = '{changed}'"
    leader.buffer.write(lambda cursor: cursor.execute(text).fetchall())
    line.check(1)
    assert (line.sessions[1].checks.compared, line.sessions[1].checks.repaired) == (1, 1)
    assert differing(*nodes) == []
    # The leader forwards them now: until the standby has forwarded them too, a comparison says nothing.
    assert not leader.buffer.write(pair_state.take_copies, 10)
    line.run()
    line.check(1)
    assert (line.sessions[1].checks.skipped, line.sessions[1].checks.repaired) == (1, 1)
    standby.ack(kept, changed)
    standby.send()
    line.run()
    line.check(1)
    assert (line.sessions[1].checks.compared, line.sessions[1].checks.repaired) == (2, 1)


def test_range_that_changes_during_the_comparison_is_compared_again(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.issue()
    line = Line(nodes)
    line.run()
    line.sessions[0].checks.begin()
    question = line.sessions[0].next_message()
    assert question is not None
    standby.send()
    line.carry(0, question)
    line.run()
    checks = line.sessions[0].checks
    assert (checks.compared, checks.repaired, checks.skipped) == (len(ROW_KINDS), 0, 0)


@pytest.mark.fault(12)
@pytest.mark.req("DEC-42")
def test_numbers_that_are_lost_with_a_disk_are_named(nodes: Nodes, tmp_path: Path) -> None:
    former, survivor = nodes
    former.send()
    line = Line(nodes)
    line.run()
    received = survivor.received
    former.send()
    former.send()
    former.issue()
    announced = line.sessions[0].position = former.buffer.read(replication.position)
    line.sessions[1].receive(line.sessions[0].heartbeat())
    fresh = NodeBuffer(tmp_path / "fresh", 0, Tracking(survivor.buffer.read).incarnation())
    greeting = PairSession(fresh.buffer, SITE, lambda: fresh.now, leadership_of(fresh)).greeting()
    with pytest.raises(Conflict) as caught:
        line.sessions[1].receive(greeting)
    assert caught.value.code == "pair.new_buffer"
    [(text,)] = survivor.rows("SELECT text FROM events WHERE kind = 'pair_repaired'")
    assert f"notifications up to number {received.messages} and" in text
    assert f"notifications {received.messages + 1} to {received.messages + 2} and changes" in text
    assert f"changes {received.changes + 1} to {announced.changes} are missing" in text
    fresh.buffer.close()


@pytest.mark.req("DEC-28", "DEC-41")
def test_former_leader_learns_of_the_new_epoch_and_hands_over_the_rest(nodes: Nodes) -> None:
    former, leader = nodes
    line = Line(nodes)
    line.run()
    rest = former.send()
    leader.lead(3)
    line.run()
    assert line.sessions[0].last_refusal is not None
    assert line.sessions[0].last_refusal.code == "pair.old_epoch"
    assert (former.state.is_leading, former.state.known) == (False, 3)
    assert leader.rows("SELECT message_id FROM copies") == [(rest,)]
    assert differing(*nodes) == []


@pytest.mark.bad_input(59)
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"t":"pair_wipe","all":true}', "pair.version"),
        (b"{", "json.malformed"),
        (b'{"t":"pair_ack"}', "link.invalid"),
        (b'{"t":"pair_ack","received":[1,2]}', "link.invalid"),
        (b"\xff", "json.not_utf8"),
    ],
)
def test_unknown_or_malformed_message_is_refused_and_changes_nothing(nodes: Nodes, data: bytes, code: str) -> None:
    nodes[0].send()
    line = Line(nodes)
    line.run()
    before = nodes[1].rows("SELECT name, value FROM facts ORDER BY name")
    answer = line.sessions[1].receive(data)
    assert answer is not None
    refusal = decode_pair(answer)
    assert isinstance(refusal, PairRefusal)
    assert refusal.code == code
    assert nodes[1].rows("SELECT name, value FROM facts ORDER BY name") == before
    assert differing(*nodes) == []


def test_first_message_must_be_the_greeting(nodes: Nodes) -> None:
    session = PairSession(nodes[0].buffer, SITE, lambda: nodes[0].now, leadership_of(nodes[0]))
    with pytest.raises(InvalidInput, match="greeting"):
        session.receive(b'{"t":"pair_ack","received":{"messages":0,"changes":0}}')


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("protocol", 2, "pair.version"),
        ("site", "plant-8", "pair.stranger"),
        ("node", 0, "pair.stranger"),
        ("incarnation", "other", "pair.stranger"),
    ],
)
def test_greeting_of_a_stranger_or_another_version_is_refused(
    nodes: Nodes, field: str, value: object, code: str
) -> None:
    sessions = [PairSession(node.buffer, SITE, lambda: nodes[0].now, leadership_of(node)) for node in nodes]
    hello = decode_pair(sessions[1].greeting())
    assert isinstance(hello, PairHello)
    with pytest.raises(Conflict) as caught:
        sessions[0].receive(encode(msgspec.structs.replace(hello, **{field: value})))
    assert caught.value.code == code
    assert not sessions[0].is_ready
