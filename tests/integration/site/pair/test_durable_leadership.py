"""The leadership of a node, with its epochs on disk, and heartbeats over a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldpost.core.errors import Conflict
from fieldpost.core.pair.leadership import Grounds, LeaseAnswer
from fieldpost.site.buffer.pair.pair_state import PairState
from fieldpost.site.pair.session import PairSession
from support.pair_buffers import NodeBuffer, leadership_of, pair_buffers

pytestmark = [pytest.mark.req("DEC-39")]

Nodes = tuple[NodeBuffer, NodeBuffer]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with pair_buffers(tmp_path) as found:
        yield found


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def granted(sent: float, epoch: int) -> LeaseAnswer:
    return LeaseAnswer(sent_at=sent, epoch=epoch, is_granted=True)


def test_granted_epoch_is_on_disk_and_survives_a_restart_without_grounds(nodes: Nodes) -> None:
    standby, time = nodes[1], Time()
    leadership = leadership_of(standby, time)
    time.now += 6
    leadership.hear_central(granted(time.now, 3))
    assert leadership.grounds is Grounds.LEASE
    assert standby.state == PairState(node=1, held=3, known=3, is_leading=True)
    restarted = leadership_of(standby, time)
    assert (restarted.node.held, restarted.node.is_leading, restarted.grounds) == (3, True, None)


def test_epoch_that_cannot_be_written_is_not_acted_on(nodes: Nodes) -> None:
    standby, time = nodes[1], Time()
    leadership = leadership_of(standby, time)
    time.now += 6
    standby.buffer.close()
    with pytest.raises(Conflict, match="closed"):
        leadership.hear_central(granted(time.now, 3))
    assert leadership.grounds is None
    assert leadership.node.held == 1


def test_leader_stops_at_a_higher_epoch_even_if_it_cannot_be_written(nodes: Nodes) -> None:
    leader, time = nodes[0], Time()
    leadership = leadership_of(leader, time)
    leadership.hear_central(granted(time.now, 2))
    assert leadership.grounds is Grounds.LEASE
    leader.buffer.close()
    with pytest.raises(Conflict, match="closed"):
        leadership.hear_epoch(3)
    assert leadership.grounds is None


def test_node_that_stepped_down_does_not_lead_after_a_restart(nodes: Nodes) -> None:
    leader, time = nodes[0], Time()
    leadership_of(leader, time).step_down()
    assert leader.state == PairState(node=0, held=2, known=2, is_leading=False)
    assert not leadership_of(leader, time).node.is_leading


def test_standby_takes_an_epoch_after_ten_minutes_alone(nodes: Nodes) -> None:
    standby, time = nodes[1], Time()
    leadership = leadership_of(standby, time)
    time.now += 599
    assert not leadership.take_if_due()
    time.now += 1
    assert leadership.take_if_due()
    assert leadership.grounds is Grounds.ALONE
    assert standby.state.held == 3


def test_answered_heartbeat_lets_the_leader_execute_and_keeps_the_standby_quiet(nodes: Nodes) -> None:
    times = Time(), Time()
    times[1].now = 5_000.0
    found = [leadership_of(node, time) for node, time in zip(nodes, times, strict=True)]
    sessions = [
        PairSession(node.buffer, "plant-7", lambda: nodes[0].now, leadership)
        for node, leadership in zip(nodes, found, strict=True)
    ]
    for place in (0, 1):
        sessions[1 - place].receive(sessions[place].greeting())
    for time in times:
        time.now += 4
    assert found[0].grounds is None
    sessions[1].receive(sessions[0].heartbeat())
    sessions[0].receive(sessions[1].heartbeat())
    assert found[0].grounds is Grounds.PEER
    for time in times:
        time.now += 4.9
    assert found[0].grounds is Grounds.PEER
    assert not found[1].is_silent
    for time in times:
        time.now += 0.2
    assert found[0].grounds is None
    assert found[1].is_silent
