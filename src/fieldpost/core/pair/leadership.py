"""Leadership of a pair: which of the two nodes executes, decided by each node from the messages it has heard.

Theory of operation. A node leads under an epoch that it wrote to its disk before it acts. Leading is not enough for
executing: a node also needs *grounds*, which expire on its own clock.

    lease    central confirmed its lease; good for 10 s from the moment at which the node sent the request
    peer     the other node has answered a heartbeat; good for 5 s from the moment at which the node sent it
    alone    the pair had no central for at least one lease when it lost the link between its nodes; or this node has
             heard neither central nor the other node for ten minutes, under `availability`; or a person decided

Times are those of *sending*, on the clock of the node that relies on them, because the answer may be late and the
receiver counts from a later moment. So `lease` and `peer` exclude each other across the two nodes:

- While a lease is valid at central, central grants no other, and the lease at central ends after the node's own.
- A node that answers a heartbeat of the leader promises not to become leader within 5 s after it received it. It
  neither asks nor takes before, and ignores a grant that arrives within this time.

`alone` excludes nothing: this is the documented window in which both nodes may execute. It ends when a node hears of a
higher epoch, by either way: it then stops at once.

A node whose clock stands still (a paused virtual machine) may execute on old grounds after it continues, for as long as
they had left. A frozen process on a running machine may not: its clock shows that they have expired.

Epochs and `is_leading` survive a restart, times do not: a node that starts counts as having heard both at its start,
and has no grounds until it hears from one of them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from fieldpost.core.pair.epoch_lease import LEASE
from fieldpost.core.pair.numbering import first_epoch, next_epoch

LEASE_S = LEASE.total_seconds()
RENEW_EVERY_S = 3.0
HEARTBEAT_EVERY_S = 1.0
SILENCE_S = 5.0
"""How long a standby hears no leader before it asks central for the next epoch."""
MARGIN_S = 5.0
"""How much longer it waits before it takes the epoch itself, where the pair was already without central."""
CUT_OFF_S = 600.0
"""How long a node that has lost both waits before it continues, under `availability`."""


class TakeoverPolicy(StrEnum):
    """The choice of a site for the case that central cannot decide."""

    AVAILABILITY = "availability"
    """The standby takes over after a margin; calls may be executed twice."""
    CONSISTENCY = "consistency"
    """The standby waits for a person; calls may wait."""


class Grounds(StrEnum):
    """The reason for which a leader may execute."""

    LEASE = "lease"
    PEER = "peer"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time by the clock of one run of a node. A machine that restarts may count from 0 again, in another run."""

    run: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairNode:
    """The knowledge of one node about the leadership. Times are seconds on its own monotonic clock."""

    node: int
    run: int
    """A random number of this run of the process."""
    policy: TakeoverPolicy = TakeoverPolicy.AVAILABILITY
    held: int
    """The last epoch that it held; on disk."""
    known: int
    """The highest epoch that it has heard of; on disk."""
    is_leading: bool = False
    """Whether it leads under `held`; on disk."""
    led_at: float = 0.0
    """When it began to lead, or started."""
    leader_at: float
    """When it last heard from the other node as leader."""
    heard_at: float
    """When it last heard from the other node."""
    heard_stamp: Stamp | None = None
    """The stamp of the newest heartbeat from the other node."""
    echoed_at: float
    """When it sent the newest heartbeat that the other node has answered."""
    central_at: float
    """When one of the two nodes last reached central, as far as this one knows; never too early."""
    renewed_at: float | None = None
    """When it sent the newest request that central answered with a lease of `held`."""
    is_alone: bool = False
    """Whether it took `held` without central, and has heard from neither since."""
    is_invited: bool = False
    """Whether the leader has given its epoch back to hand over to this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHeartbeat:
    """A heartbeat from one node to the other."""

    sent: Stamp
    """By the sender's clock; the receiver returns it as `echo`."""
    known: int
    held: int
    is_leading: bool
    echo: Stamp | None
    """The stamp of the newest heartbeat that the sender has received, by the receiver's clock."""
    central_age_s: float
    """How long ago the pair reached central, as far as the sender knows."""
    relayed: Stamp | None = None
    """The stamp of a heartbeat for which the sender renewed the receiver's lease at central."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    """Central's answer to a request for a new epoch or for a renewal."""

    sent_at: float
    """When the node sent the request, by its own clock."""
    epoch: int
    """The highest epoch that central knows."""
    is_granted: bool
    """Whether the asking node has the lease of this epoch."""


def begin(
    node: int,
    run: int,
    now: float,
    policy: TakeoverPolicy = TakeoverPolicy.AVAILABILITY,
    *,
    held: int | None = None,
    known: int = 0,
    is_leading: bool = False,
) -> PairNode:
    """The state of a node that starts, with the values from its disk."""
    held = first_epoch(node) if held is None else held
    return PairNode(
        node=node,
        run=run,
        policy=policy,
        held=held,
        known=max(held, known),
        is_leading=is_leading and held >= known,
        led_at=now,
        leader_at=now,
        heard_at=now,
        echoed_at=now,
        central_at=now,
    )


def grounds(node: PairNode, now: float) -> Grounds | None:
    """The grounds on which the node may execute now; None if it may not."""
    if not node.is_leading or node.known > node.held:
        return None
    if node.renewed_at is not None and now < node.renewed_at + LEASE_S:
        return Grounds.LEASE
    # An answer to a heartbeat from before it led promises nothing.
    if node.led_at < node.echoed_at and now < node.echoed_at + SILENCE_S:
        return Grounds.PEER
    if node.is_alone or _was_without_central(node) or _is_cut_off_for_long(node, now):
        return Grounds.ALONE
    return None


def is_silent(node: PairNode, now: float) -> bool:
    """Whether the other node's leadership is in doubt."""
    return not node.is_leading and (node.is_invited or now >= node.leader_at + SILENCE_S)


def should_take(node: PairNode, now: float) -> bool:
    """Whether a standby takes the next epoch without central."""
    if node.is_leading or node.policy is not TakeoverPolicy.AVAILABILITY:
        return False
    is_over = now >= node.leader_at + SILENCE_S + MARGIN_S
    return (is_over and _was_without_central(node)) or _is_cut_off_for_long(node, now)


def take(node: PairNode, now: float) -> PairNode:
    """Take the next epoch without central: by `should_take`, or by order of a person. Write it before acting on it."""
    epoch = next_epoch(node.node, node.known)
    return replace(_leading(node, epoch, now), is_alone=True)


def step_down(node: PairNode, now: float) -> PairNode:
    """Stop leading, before the epoch is given back. The other node has as much time to lead as after its heartbeat."""
    leader_at = now if node.is_leading else node.leader_at
    return replace(node, is_leading=False, is_alone=False, renewed_at=None, leader_at=leader_at)


def heartbeat(node: PairNode, now: float, relayed: Stamp | None = None) -> PairHeartbeat:
    """The heartbeat to send now."""
    return PairHeartbeat(
        sent=Stamp(node.run, now),
        known=node.known,
        held=node.held,
        is_leading=node.is_leading,
        echo=node.heard_stamp,
        central_age_s=now - node.central_at,
        relayed=relayed,
    )


def hear(node: PairNode, beat: PairHeartbeat, now: float) -> PairNode:
    """The state after a heartbeat of the other node, in any order and any number of times."""
    is_leader = beat.is_leading and beat.held >= max(beat.known, node.known)
    node = learn(node, max(beat.known, beat.held), now)
    node = replace(
        node,
        heard_at=now,
        leader_at=now if is_leader else node.leader_at,
        heard_stamp=_newer(beat.sent, node.heard_stamp),
        # Later than in fact by the time that the heartbeat was on its way; never earlier.
        central_at=max(node.central_at, now - beat.central_age_s),
        is_invited=node.is_invited and not is_leader,
    )
    echo, relayed = _own(node, beat.echo), _own(node, beat.relayed)
    if echo is not None and echo > node.echoed_at:
        node = replace(node, echoed_at=echo, is_alone=node.is_alone and echo <= node.led_at)
    if relayed is not None and node.is_leading and relayed > node.led_at:
        node = replace(node, renewed_at=max(relayed, node.renewed_at or relayed), is_alone=False)
    return node


def learn(node: PairNode, epoch: int, now: float) -> PairNode:
    """The state after hearing of an epoch: the node stops leading if it is higher than its own."""
    if epoch <= node.held:
        return node
    return replace(step_down(node, now), known=max(epoch, node.known))


def invite(node: PairNode, epoch: int) -> PairNode:
    """The state after the leader of this epoch announced that it stopped and gave the epoch back to hand over."""
    return replace(node, is_invited=True) if not node.is_leading and epoch >= node.known else node


def hear_central(node: PairNode, answer: LeaseAnswer, now: float) -> PairNode:
    """The state after an answer of central, in any order and any number of times. Write it before acting on it."""
    node = replace(node, central_at=now, is_alone=False)
    if not answer.is_granted:
        return learn(node, answer.epoch, now)
    if node.is_leading and answer.epoch == node.held:
        return replace(node, renewed_at=max(answer.sent_at, node.renewed_at or answer.sent_at))
    if answer.epoch > node.known and is_silent(node, now):
        return replace(_leading(node, answer.epoch, now), renewed_at=answer.sent_at)
    # A grant that comes too late: the other node leads again, or this node has heard of a higher epoch.
    return learn(node, answer.epoch, now)


def _leading(node: PairNode, epoch: int, now: float) -> PairNode:
    return replace(node, held=epoch, known=epoch, is_leading=True, led_at=now, renewed_at=None, is_invited=False)


def _own(node: PairNode, stamp: Stamp | None) -> float | None:
    """The time of a stamp of this run of the node; None for another run, whose clock is unknown."""
    return stamp.at if stamp is not None and stamp.run == node.run else None


def _newer(stamp: Stamp, known: Stamp | None) -> Stamp:
    return known if known is not None and known.run == stamp.run and known.at > stamp.at else stamp


def _was_without_central(node: PairNode) -> bool:
    """Whether the pair had been without central for a whole lease when its nodes last heard each other.

    Judged by an answered heartbeat: the time at which a message arrives says nothing about when the link worked.
    """
    return node.echoed_at >= node.central_at + LEASE_S


def _is_cut_off_for_long(node: PairNode, now: float) -> bool:
    since = max(node.heard_at, node.echoed_at, node.central_at)
    return node.policy is TakeoverPolicy.AVAILABILITY and now >= since + CUT_OFF_S
