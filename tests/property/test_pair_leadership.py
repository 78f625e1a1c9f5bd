"""A model of two nodes and central over the rules of leadership.

Messages are lost, doubled and delayed, links are cut in each direction, nodes restart, freeze with a running clock, and
machines pause with a clock that stands still. No epoch has two holders, epochs only grow, and two nodes execute at the
same time only in the documented windows: one of them executes alone, or its clock stood still.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fieldpost.core.pair import epoch_lease
from fieldpost.core.pair.epoch_lease import EpochLease
from fieldpost.core.pair.leadership import (
    CUT_OFF_S,
    LEASE_S,
    RENEW_EVERY_S,
    SILENCE_S,
    Grounds,
    LeaseAnswer,
    PairHeartbeat,
    PairNode,
    Stamp,
    TakeoverPolicy,
    begin,
    grounds,
    hear,
    hear_central,
    heartbeat,
    is_silent,
    should_take,
    step_down,
    take,
)
from support.sample import NOW

pytestmark = [pytest.mark.req("DEC-39")]

STEP_S = 0.5
Place = Literal["0", "1", "central"]
NODES = st.sampled_from((0, 1))
LINKS: list[tuple[Place, Place]] = [
    ("0", "1"),
    ("1", "0"),
    ("0", "central"),
    ("1", "central"),
    ("central", "0"),
    ("central", "1"),
]


@dataclass(frozen=True)
class Ask:
    node: int
    run: int
    known: int
    epoch: int | None
    """The epoch to renew; None asks for a new one."""
    sent_at: float
    relayed: Stamp | None = None
    is_returned: bool = False


@dataclass(frozen=True)
class Reply:
    run: int
    answer: LeaseAnswer
    relayed: Stamp | None


@dataclass(frozen=True)
class Packet:
    source: Place
    target: Place
    content: PairHeartbeat | Ask | Reply


@dataclass
class Machine:
    """One node with its clock."""

    state: PairNode
    clock: float = 0.0
    is_frozen: bool = False
    """Executes no step, with a running clock."""
    is_paused: bool = False
    """Executes no step, and the clock stands still."""
    stood_still_at: float = -1e9
    """The true time at which its clock last stood still."""
    relayed: Stamp | None = None
    sent: dict[float, float] = field(default_factory=dict)
    """The true time of each time on its clock in this run."""
    contacts: list[float] = field(default_factory=list)
    """The true times of its contacts with central."""
    renewed_at: float = 0.0
    was_alone: bool = False

    @property
    def is_running(self) -> bool:
        return not (self.is_frozen or self.is_paused)

    @property
    def grounds(self) -> Grounds | None:
        return grounds(self.state, self.clock) if self.is_running else None


class Pair(RuleBasedStateMachine):
    """Two nodes, central and the lines between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.runs = 10
        self.lease: EpochLease | None = None
        self.cuts: set[tuple[Place, Place]] = set()
        self.slow: set[tuple[Place, Place]] = set()
        self.waiting: list[Packet] = []
        self.on_the_way: list[Packet] = []
        self.holders: dict[int, int] = {}
        self.machines: list[Machine] = []

    @initialize(policy=st.sampled_from(TakeoverPolicy), has_central=st.booleans())
    def start(self, policy: TakeoverPolicy, has_central: bool) -> None:
        states = [begin(node, node, 0.0, policy, held=(2, 1)[node], known=2, is_leading=node == 0) for node in (0, 1)]
        self.machines = [Machine(state) for state in states]
        self.holders = {2: 0, 1: 1}
        if not has_central:
            self.cuts |= {("0", "central"), ("1", "central")}
        for _ in range(30):
            self._step()

    @rule(steps=st.integers(1, 60))
    def let_time_pass(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    @rule()
    def wait_beyond_the_cut_off_time(self) -> None:
        for _ in range(int(CUT_OFF_S / 2) + 10):
            self._step(2.0)

    @rule(link=st.sampled_from(LINKS))
    def cut(self, link: tuple[Place, Place]) -> None:
        self.cuts.add(link)

    @rule()
    def cut_pair_link(self) -> None:
        self.cuts |= {("0", "1"), ("1", "0")}

    @rule(link=st.sampled_from(LINKS))
    def delay(self, link: tuple[Place, Place]) -> None:
        self.slow.add(link)

    @rule(is_reversed=st.booleans())
    def deliver_delayed(self, is_reversed: bool) -> None:
        waiting, self.waiting = self.waiting, []
        self.slow.clear()
        for packet in reversed(waiting) if is_reversed else waiting:
            self._deliver(packet)
            self.no_two_nodes_execute_outside_the_windows()

    @rule(node=NODES)
    def cut_off(self, node: int) -> None:
        self.cuts |= {("0", "1"), ("1", "0"), (_place(node), "central"), ("central", _place(node))}

    @rule()
    def heal(self) -> None:
        self.cuts.clear()
        self.slow.clear()

    @rule()
    def heal_pair_link(self) -> None:
        self.cuts -= {("0", "1"), ("1", "0")}

    @rule(node=NODES)
    def heal_uplink(self, node: int) -> None:
        self.cuts -= {(_place(node), "central"), ("central", _place(node))}

    @rule(data=st.data())
    def deliver_late_or_again(self, data: st.DataObject) -> None:
        if self.on_the_way:
            self._deliver(data.draw(st.sampled_from(self.on_the_way[-40:])))

    @rule(node=NODES)
    def freeze(self, node: int) -> None:
        self.machines[node].is_frozen = True

    @rule(node=NODES)
    def pause(self, node: int) -> None:
        self.machines[node].is_paused = True

    @rule(node=NODES)
    def continue_(self, node: int) -> None:
        self.machines[node].is_frozen = self.machines[node].is_paused = False

    @rule(node=NODES)
    def restart(self, node: int) -> None:
        machine, state = self.machines[node], self.machines[node].state
        self.runs += 1
        fresh = begin(
            node,
            self.runs,
            0.0,
            state.policy,
            held=state.held,
            known=state.known,
            is_leading=state.is_leading,
        )
        self.machines[node] = Machine(fresh, contacts=machine.contacts)

    @rule(node=NODES)
    def give_back(self, node: int) -> None:
        machine = self.machines[node]
        if machine.is_running and machine.state.is_leading:
            epoch = machine.state.held
            machine.state = step_down(machine.state, machine.clock)
            self._send(node, Ask(node, machine.state.run, 0, epoch, machine.clock, is_returned=True))

    @invariant()
    def no_two_nodes_execute_outside_the_windows(self) -> None:
        found = [machine.grounds for machine in self.machines]
        for machine in self.machines:
            self._check_alone(machine)
        if len(found) < 2 or None in found:
            return
        epochs = [machine.state.held for machine in self.machines]
        assert epochs[0] != epochs[1]
        is_alone = Grounds.ALONE in found
        assert is_alone or any(self._relies_on_a_stopped_clock(machine) for machine in self.machines), (found, epochs)

    def _check_alone(self, machine: Machine) -> None:
        """A node that begins to execute alone has lost both long ago, or the pair had no central before the cut."""
        was_alone, machine.was_alone = machine.was_alone, machine.grounds is Grounds.ALONE
        if was_alone or not machine.was_alone:
            return
        state = machine.state
        cut_at = machine.sent.get(state.echoed_at, self.now)
        is_cut_off_for_long = machine.clock >= max(state.heard_at, state.echoed_at, state.central_at) + CUT_OFF_S
        # A contact at the moment of the last answered heartbeat may be after it, and then neither node could report it.
        contacts = [at for one in self.machines for at in one.contacts if cut_at - LEASE_S < at < cut_at]
        assert is_cut_off_for_long or not contacts

    def _relies_on_a_stopped_clock(self, machine: Machine) -> bool:
        state = machine.state
        kept = (state.renewed_at, LEASE_S) if machine.grounds is Grounds.LEASE else (state.echoed_at, SILENCE_S)
        assert kept[0] is not None
        return machine.stood_still_at >= machine.sent[kept[0]]

    def _step(self, step_s: float = STEP_S) -> None:
        self.now += step_s
        for machine in self.machines:
            if machine.is_paused:
                machine.stood_still_at = self.now
            else:
                machine.clock += step_s
            machine.sent[machine.clock] = self.now
        for node, machine in enumerate(self.machines):
            if machine.is_running:
                self._act(node, machine)
        self.no_two_nodes_execute_outside_the_windows()

    def _act(self, node: int, machine: Machine) -> None:
        state, clock = machine.state, machine.clock
        self._send_to_peer(node, heartbeat(state, clock, machine.relayed))
        if state.is_leading and clock >= machine.renewed_at + RENEW_EVERY_S:
            machine.renewed_at = clock
            self._send(node, Ask(node, state.run, state.known, state.held, clock))
        elif should_take(state, clock):
            self._change(node, take(state, clock))
        elif is_silent(state, clock):
            self._send(node, Ask(node, state.run, state.known, None, clock))

    def _send(self, node: int, ask: Ask) -> None:
        self._post(Packet(_place(node), "central", ask))

    def _send_to_peer(self, node: int, beat: PairHeartbeat) -> None:
        self._post(Packet(_place(node), _place(1 - node), beat))

    def _post(self, packet: Packet) -> None:
        self.on_the_way.append(packet)
        del self.on_the_way[:-400]
        if (packet.source, packet.target) in self.cuts:
            return
        if (packet.source, packet.target) in self.slow:
            self.waiting.append(packet)
        else:
            self._deliver(packet)

    def _deliver(self, packet: Packet) -> None:
        if packet.target == "central":
            self._answer(packet)
            return
        node = int(packet.target)
        machine = self.machines[node]
        if not machine.is_running:
            return
        match packet.content:
            case PairHeartbeat() as beat:
                self._change(node, hear(machine.state, beat, machine.clock))
                if beat.is_leading and beat.held >= self.machines[node].state.known:
                    # Renew the leader's lease through this node.
                    ask = Ask(1 - node, machine.state.run, beat.known, beat.held, machine.clock, relayed=beat.sent)
                    self._post(Packet(_place(node), "central", ask))
            case Reply(run=run, answer=answer, relayed=relayed) if run == machine.state.run:
                machine.contacts.append(self.now)
                del machine.contacts[:-100]
                if relayed is None:
                    self._change(node, hear_central(machine.state, answer, machine.clock))
                else:
                    machine.relayed = relayed if answer.is_granted else machine.relayed
                    seen = replace(answer, is_granted=False)
                    self._change(node, hear_central(machine.state, seen, machine.clock))
            case _:
                pass

    def _answer(self, packet: Packet) -> None:
        ask = packet.content
        assert isinstance(ask, Ask)
        at = NOW + timedelta(seconds=self.now)
        if ask.is_returned:
            assert ask.epoch is not None
            self.lease = epoch_lease.give_back(self.lease, ask.node, ask.epoch) or self.lease
            return
        if ask.epoch is None:
            found = epoch_lease.grant(self.lease, ask.node, ask.known, at)
        else:
            found = epoch_lease.renew(self.lease, ask.node, ask.epoch, at)
        if self.lease is not None and found is not None:
            assert found.epoch >= self.lease.epoch
        self.lease = found or self.lease
        epoch = 0 if self.lease is None else self.lease.epoch
        answer = LeaseAnswer(sent_at=ask.sent_at, epoch=epoch, is_granted=found is not None)
        self._post(Packet("central", packet.source, Reply(ask.run, answer, ask.relayed)))

    def _change(self, node: int, state: PairNode) -> None:
        before = self.machines[node].state
        assert state.held >= before.held
        assert state.known >= before.known
        if state.held != before.held:
            assert state.held > before.known
            assert self.holders.setdefault(state.held, node) == node
        self.machines[node].state = state
        # At once: a message that arrives in the same step may hide the reason.
        self._check_alone(self.machines[node])


def _place(node: int) -> Place:
    return "0" if node == 0 else "1"


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=150, stateful_step_count=60)
