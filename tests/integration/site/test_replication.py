"""Replication between the buffers of a pair: numbers, changes, merging, snapshots and digests."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.pair.numbering import epoch_of, first_number
from fieldpost.core.sites.forwarding import Box
from fieldpost.link.pair_rows import StreamPosition
from fieldpost.site.buffer import command_log, rejected, tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.fresh_ids import fresh_id
from fieldpost.site.buffer.pair import pair_state, replica, replication
from support.pair_buffers import (
    NodeBuffer,
    copy_both_ways,
    copy_changes,
    differing,
    pair_buffers,
    take_snapshot,
)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[NodeBuffer, NodeBuffer]]:
    with pair_buffers(tmp_path) as found:
        yield found


Nodes = tuple[NodeBuffer, NodeBuffer]


def sequences(node: NodeBuffer) -> list[int]:
    return [number for (number,) in node.rows("SELECT sequence FROM messages WHERE status <> 'marker' ORDER BY 1")]


@pytest.mark.req("DEC-41")
def test_sequence_never_goes_back_when_the_table_is_emptied(nodes: Nodes) -> None:
    leader, _ = nodes
    first = [leader.send() for _ in range(3)]
    before = sequences(leader)
    leader.ack(*first)
    leader.send()
    assert sequences(leader)[0] > max(before)
    assert {epoch_of(number) for number in (*before, *sequences(leader))} == {2}


@pytest.mark.req("DEC-41", "DEC-87")
def test_new_epoch_raises_the_numbers_of_notifications_changes_and_calls(nodes: Nodes) -> None:
    _, standby = nodes
    standby.send()
    call = standby.issue()
    standby.lead(3)
    standby.send()
    standby.settle(call, "retrying")
    assert [epoch_of(number) for number in sequences(standby)] == [1, 3]
    [(version, change)] = standby.rows("SELECT version, change_sequence FROM tracking")
    assert (version, epoch_of(change)) == (first_number(3), 3)
    assert epoch_of(standby.buffer.read(replication.position).changes) == 3


@pytest.mark.req("DEC-39")
@pytest.mark.parametrize("epoch", [2, 4, 1])
def test_epoch_of_the_other_parity_or_an_old_one_is_not_taken(nodes: Nodes, epoch: int) -> None:
    with pytest.raises(Conflict, match="cannot follow"):
        nodes[1].lead(epoch)


def test_marker_is_not_a_message(nodes: Nodes) -> None:
    leader, _ = nodes
    assert sum(leader.buffer.depth().waiting.values()) == 0
    assert leader.buffer.depth().oldest_created_at is None
    assert leader.buffer.take(leader.now, items_max=10, bytes_max=1_000) == []


@pytest.mark.req("REP-04", "DEC-87")
def test_added_and_removed_messages_reach_the_other_node(nodes: Nodes) -> None:
    leader, standby = nodes
    kept, gone = leader.send("1"), leader.send("2")
    copy_changes(leader, standby)
    assert standby.rows("SELECT message_id, payload FROM copies ORDER BY payload") == [(kept, "1"), (gone, "2")]
    leader.ack(gone)
    copy_changes(leader, standby)
    assert standby.rows("SELECT message_id FROM copies") == [(kept,)]
    assert differing(*nodes) == []


@pytest.mark.req("REP-04", "DEC-87")
@pytest.mark.parametrize("result", ["delivered", "retrying", "parked"])
@pytest.mark.parametrize("origin", [0, 1])
def test_call_and_its_record_reach_the_other_node(nodes: Nodes, result: str, origin: int) -> None:
    call = nodes[origin].issue()
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert nodes[origin].settle(call, result)
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert nodes[1 - origin].rows("SELECT status FROM tracking") == [(result,)]


def test_rejected_box_keys_and_commands_reach_the_other_node(nodes: Nodes) -> None:
    leader, standby = nodes
    first, second = leader.send(key="k1"), leader.send()
    leader.buffer.settle([(one, Box("list.unknown", "no such list")) for one in (first, second)], leader.now)
    leader.buffer.write(command_log.insert, "intent-1", "applied", None, leader.now)
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert len(standby.buffer.rejected()) == 2
    leader.buffer.write(rejected.discard, first, leader.now)
    leader.buffer.write(rejected.resubmit, second, leader.now)
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert standby.rows("SELECT message_id FROM copies") == [(second,)]
    assert standby.buffer.rejected() == []


@pytest.mark.req("DEC-42")
def test_claim_of_the_other_node_is_respected_for_its_length_on_this_nodes_clock(nodes: Nodes) -> None:
    leader, standby = nodes
    standby.now += timedelta(hours=5)
    leader.issue(claim_s=25)
    copy_changes(leader, standby)
    standby.lead(3)
    standby.now += timedelta(seconds=24)
    assert standby.claim() == []
    standby.now += timedelta(seconds=1)
    assert len(standby.claim()) == 1


@pytest.mark.bad_input(59)
@pytest.mark.fault(10)
def test_replay_is_ignored_and_a_gap_is_refused(nodes: Nodes) -> None:
    leader, standby = nodes
    message = leader.send()
    first = leader.batch(StreamPosition())
    assert first is not None
    standby.apply(first)
    leader.ack(message)
    leader.issue()
    second = leader.batch(first.until)
    assert second is not None
    standby.apply(second)
    assert standby.apply(first).rows == 0
    assert standby.apply(second).rows == 0
    leader.send()
    third = leader.batch(second.until)
    leader.send()
    assert third is not None
    fourth = leader.batch(third.until)
    assert fourth is not None
    with pytest.raises(Conflict) as caught:
        standby.apply(fourth)
    assert caught.value.code == "pair.gap"
    standby.apply(third)
    standby.apply(fourth)
    assert differing(*nodes) == []


@pytest.mark.bad_input(59)
def test_batch_of_an_old_epoch_is_refused_and_changes_nothing(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.send()
    old = leader.batch(StreamPosition())
    assert old is not None
    standby.lead(3)
    with pytest.raises(Conflict) as caught:
        standby.apply(old)
    assert caught.value.code == "pair.old_epoch"
    assert standby.rows("SELECT * FROM copies") == []


@pytest.mark.bad_input(59)
def test_batch_with_an_epoch_that_its_sender_cannot_hold_is_refused(nodes: Nodes) -> None:
    leader, _ = nodes
    own = leader.batch(StreamPosition())
    assert own is not None
    with pytest.raises(InvalidInput) as caught:
        leader.apply(own)
    assert (caught.value.code, caught.value.field) == ("pair.wrong_epoch", "epoch")


@pytest.mark.req("DEC-41", "DEC-42")
def test_call_delivered_by_both_nodes_is_one_record_and_a_duplicate_in_the_event_log(nodes: Nodes) -> None:
    former, leader = nodes
    call = former.issue()
    copy_both_ways(*nodes)
    assert former.settle(call, "delivered")
    leader.lead(3)
    leader.now += timedelta(seconds=30)
    [taken] = leader.claim()
    assert leader.settle(taken, "delivered")
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    [(_kind, message_id, text)] = leader.rows("SELECT kind, message_id, text FROM events WHERE kind = 'duplicate'")
    assert message_id == call.message_id
    assert "2026-11-15T08:00:00" in text
    assert "2026-11-15T08:00:30" in text


@pytest.mark.req("DEC-42")
def test_attempts_without_a_known_result_are_named(nodes: Nodes) -> None:
    former, leader = nodes
    in_flight, timed_out = former.issue(), former.issue()
    former.settle(timed_out, "retrying")
    copy_both_ways(*nodes)
    [again] = former.claim()
    former.settle(again, "retrying")
    leader.lead(3)
    leader.now += timedelta(seconds=30)
    named = "SELECT message_id FROM events WHERE kind = 'uncertain'"
    taken = leader.claim()
    assert leader.rows(named) == [(in_flight.message_id,)], "the claim of the other node ended without a result"
    for message in taken:
        leader.settle(message, "delivered")
    copy_both_ways(*nodes)
    assert set(leader.rows(named)) == {(in_flight.message_id,), (timed_out.message_id,)}
    assert differing(*nodes) == []


@pytest.mark.req("DEC-41")
@pytest.mark.parametrize(("at_former", "at_leader"), [("delivered", "parked"), ("parked", "delivered")])
def test_branch_that_got_further_continues_with_a_higher_version(nodes: Nodes, at_former: str, at_leader: str) -> None:
    former, leader = nodes
    call = former.issue()
    copy_both_ways(*nodes)
    former.settle(call, at_former)
    leader.lead(3)
    leader.now += timedelta(seconds=30)
    [taken] = leader.claim()
    leader.settle(taken, at_leader)
    [(before,)] = leader.rows("SELECT version FROM tracking")
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    [(status, version)] = former.rows("SELECT status, version FROM tracking")
    assert status == "delivered"
    assert version > before
    assert former.rows("SELECT * FROM calls") == []


@pytest.mark.req("DEC-42")
def test_key_used_on_both_nodes_is_a_duplicate_in_the_event_log(nodes: Nodes) -> None:
    ours, theirs = (node.send(key="order-7") for node in nodes)
    copy_both_ways(*nodes)
    assert [node.rows("SELECT message_id FROM keys") for node in nodes] == [[(ours,)], [(ours,)]]
    [(text,)] = nodes[0].rows("SELECT text FROM events WHERE kind = 'duplicate'")
    assert ours in text
    assert theirs in text


@pytest.mark.req("DEC-28", "DEC-41")
def test_returning_node_hands_over_exactly_the_rest(nodes: Nodes) -> None:
    former, leader = nodes
    copied = former.send()
    copy_both_ways(*nodes)
    rest = former.send()
    call = former.issue()
    leader.lead(3)
    leader.send()
    former.buffer.write(pair_state.learn_epoch, 3)
    batch = former.batch(leader.received)
    assert batch is not None
    assert [one.message_id for one in batch.messages] == [rest]
    assert [one.id for one in batch.changes if one.kind == "call"] == [call.message_id]
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert {one for (one,) in leader.rows("SELECT message_id FROM copies")} == {copied, rest}


@pytest.mark.fault(73)
@pytest.mark.parametrize("is_changed_before_the_cut", [True, False])
def test_call_that_the_other_node_finished_and_purged_is_not_executed_again(
    nodes: Nodes, is_changed_before_the_cut: bool
) -> None:
    former, leader = nodes
    call = former.issue()
    copy_both_ways(*nodes)
    if is_changed_before_the_cut:
        former.settle(call, "retrying")
    new = former.issue()
    leader.lead(3)
    leader.now += timedelta(seconds=30)
    [taken] = leader.claim()
    leader.settle(taken, "delivered")
    leader.now += timedelta(days=8)
    former.now = leader.now
    assert leader.buffer.write(tracking.purge, leader.now - timedelta(days=7)) == 1
    copy_both_ways(*nodes)
    assert [node.rows("SELECT message_id FROM calls") for node in nodes] == [[(new.message_id,)]] * 2
    assert differing(*nodes) == []


@pytest.mark.req("DEC-41")
def test_each_epoch_keeps_how_far_the_other_node_had_it(nodes: Nodes) -> None:
    former, leader = nodes
    former.send()
    copy_both_ways(*nodes)
    kept = leader.received
    leader.lead(3)
    copy_both_ways(*nodes)
    former.lead(4)
    former.send()
    copy_both_ways(*nodes)
    found = leader.buffer.read(pair_state.received_by_epoch)
    assert found[2] == kept
    assert epoch_of(found[4].messages) == 4


def test_records_of_a_standby_get_new_numbers_when_it_takes_over(nodes: Nodes) -> None:
    _, standby = nodes
    standby.issue()
    standby.lead(3)
    [record] = tracking.Tracking(standby.buffer.read).changed_since(first_number(2) + 1_000, 10)
    assert epoch_of(record.change_sequence) == 3


def test_copies_become_own_notifications_in_bounded_pieces(nodes: Nodes) -> None:
    leader, standby = nodes
    sent = [leader.send() for _ in range(5)]
    copy_changes(leader, standby)
    assert standby.buffer.write(pair_state.take_copies, 3)
    assert not standby.buffer.write(pair_state.take_copies, 3)
    taken = standby.buffer.take(standby.now, items_max=10, bytes_max=10_000)
    assert [one.message_id for one in taken] == sent


@pytest.mark.req("DEC-28")
def test_lost_changes_are_repaired_by_a_snapshot_in_pieces_and_own_rows_stay(nodes: Nodes) -> None:
    leader, standby = nodes
    stale = leader.send()
    old = leader.issue()
    copy_both_ways(*nodes)
    leader.ack(stale)
    leader.settle(old, "delivered")
    for _ in range(7):
        leader.send(key=f"k{len(sequences(leader))}")
        leader.issue()
    leader.buffer.write(tracking.purge, leader.now + timedelta(days=1))
    leader.buffer.write(pair_state.set_acked, standby.received)
    leader.prune(changes_max=3)
    assert leader.batch(standby.received) is None
    own = standby.issue()
    assert take_snapshot(leader, standby, items_max=3) > 5
    assert (own.message_id,) in standby.rows("SELECT message_id FROM calls")
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    assert (old.message_id,) not in standby.rows("SELECT call_id FROM tracking")


def test_digest_finds_a_row_that_differs(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.send()
    leader.issue()
    copy_both_ways(*nodes)
    assert differing(*nodes) == []
    standby.buffer.write(lambda cursor: cursor.execute("UPDATE copies SET payload = '{} '").fetchall())
    standby.buffer.write(lambda cursor: cursor.execute("UPDATE tracking SET retry_count = 9").fetchall())
    assert differing(*nodes) == ["message of node 0", "call of node 0", "call of node 1"]


def test_lag_counts_changes_that_the_other_node_lacks(nodes: Nodes) -> None:
    leader, standby = nodes
    leader.send()
    leader.issue()
    assert leader.buffer.read(replication.behind, standby.received) == 2
    copy_both_ways(*nodes)
    assert leader.buffer.read(replication.behind, standby.received) == 0


def test_acknowledged_entries_are_pruned_and_numbers_continue(nodes: Nodes) -> None:
    leader, _ = nodes
    for _ in range(3):
        leader.issue()
    copy_both_ways(*nodes)
    last = leader.buffer.read(replication.position)
    leader.buffer.write(replication.prune)
    assert leader.rows("SELECT count(*) FROM changes") == [(1,)]
    leader.issue()
    assert leader.buffer.read(replication.position).changes > last.changes
    copy_both_ways(*nodes)
    assert differing(*nodes) == []


def test_leaving_the_pair_keeps_messages_and_takes_over_copies(nodes: Nodes) -> None:
    leader, standby = nodes
    first, second = leader.send(), standby.send()
    copy_both_ways(*nodes)
    standby.buffer.write(pair_state.remove)
    assert {one for (one,) in standby.rows("SELECT message_id FROM messages")} == {first, second}
    assert standby.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'") == []
    assert standby.buffer.read(pair_state.find) is None


def test_single_site_has_no_triggers_and_no_entries(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path / "buffer.db")

    def count(cursor: apsw.Cursor) -> list[tuple[int]]:
        return cursor.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchall()

    assert buffer.read(count) == [(0,)]
    buffer.close()


def test_send_in_a_pair_writes_the_same_pages_as_on_a_single_site(nodes: Nodes, tmp_path: Path) -> None:
    single = Buffer(tmp_path / "single.db")
    paired = nodes[0]

    def log_bytes(path: Path) -> int:
        return path.with_name(f"{path.name}-wal").stat().st_size

    grown = []
    for path, send in (
        (tmp_path / "single.db", lambda: single.add(fresh_id(1), "{}", 0)),
        (tmp_path / "a" / "buffer.db", paired.send),
    ):
        send()
        before = log_bytes(path)
        for _ in range(20):
            send()
        grown.append(log_bytes(path) - before)
    assert grown[0] == grown[1]
    single.close()


def test_rows_from_before_the_pair_reach_the_other_node(tmp_path: Path) -> None:
    with pair_buffers(tmp_path) as nodes:
        for node in nodes:
            node.buffer.write(pair_state.remove)
            node.send(key=f"key-{node.node}")
            node.settle(node.issue(), "delivered")
            node.issue()
            node.buffer.write(command_log.insert, f"intent-{node.node}", "applied", None, node.now)
        nodes[0].buffer.write(pair_state.create, 0)
        nodes[1].buffer.write(pair_state.create, 1)
        nodes[0].lead(2)
        copy_both_ways(*nodes)
        assert differing(*nodes) == []
        assert [node.rows("SELECT count(*) FROM tracking") for node in nodes] == [[(4,)], [(4,)]]


@pytest.mark.bad_input(59)
def test_snapshot_of_a_former_leader_changes_nothing(nodes: Nodes) -> None:
    former, leader = nodes
    piece = former.buffer.read(replication.read_piece, "call", "", 0)
    end = former.buffer.read(replication.position)
    leader.lead(3)
    call = leader.issue()
    for work in (
        partial(leader.buffer.write, replica.apply_piece, piece, leader.now),
        partial(leader.buffer.write, replica.end_snapshot, 2, 2, end),
    ):
        with pytest.raises(Conflict) as caught:
            work()
        assert caught.value.code == "pair.old_epoch"
    former.buffer.write(pair_state.learn_epoch, 3)
    piece = former.buffer.read(replication.read_piece, "call", "", 0)
    with pytest.raises(Conflict) as caught:
        leader.buffer.write(replica.apply_piece, piece, leader.now)
    assert caught.value.code == "pair.not_leader"
    assert leader.rows("SELECT message_id FROM calls") == [(call.message_id,)]
