"""The leadership of this node: the rules of `core.pair.leadership`, with the epochs on disk.

Every change of an epoch is in the buffer before this object shows it, so that nobody acts on an epoch that a restart
would forget. In the other direction, a node that hears of a higher epoch has no grounds from that moment on, even if
the disk fails: stopping needs no disk.
"""

import threading
from collections.abc import Callable
from dataclasses import replace

from fieldpost.core.pair import leadership as rules
from fieldpost.core.pair.leadership import Grounds, LeaseAnswer, PairHeartbeat, PairNode, Stamp, TakeoverPolicy
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state


class Leadership:
    """The knowledge of this node about the leadership of its pair. Safe to use from several threads."""

    def __init__(
        self,
        buffer: Buffer,
        monotonic: Callable[[], float],
        run: int,
        policy: TakeoverPolicy = TakeoverPolicy.AVAILABILITY,
    ) -> None:
        """`run` is a random number of this process; `monotonic` must go on while the process is frozen."""
        self._buffer = buffer
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self.relayed: Stamp | None = None
        """The newest heartbeat of the leader for which this node renewed its lease at central."""
        stored = buffer.read(pair_state.get)
        self._node = rules.begin(
            stored.node,
            run,
            monotonic(),
            policy,
            held=stored.held,
            known=stored.known,
            is_leading=stored.is_leading,
        )

    @property
    def node(self) -> PairNode:
        return self._node

    @property
    def grounds(self) -> Grounds | None:
        """The grounds on which this node may execute at this moment."""
        return rules.grounds(self._node, self._monotonic())

    @property
    def is_silent(self) -> bool:
        """Whether this node should ask central for the next epoch."""
        return rules.is_silent(self._node, self._monotonic())

    def heartbeat(self) -> PairHeartbeat:
        """The heartbeat to send now."""
        return rules.heartbeat(self._node, self._monotonic(), self.relayed)

    def invite(self, epoch: int) -> None:
        """Record that the leader of this epoch hands over to this node."""
        self._change(lambda node, now: rules.invite(node, epoch))

    def hear(self, beat: PairHeartbeat) -> None:
        """Record a heartbeat of the other node."""
        self._change(lambda node, now: rules.hear(node, beat, now))

    def hear_central(self, answer: LeaseAnswer) -> None:
        """Record an answer of central."""
        self._change(lambda node, now: rules.hear_central(node, answer, now))

    def hear_epoch(self, epoch: int) -> None:
        """Record an epoch that the other node knows."""
        self._change(lambda node, now: rules.learn(node, epoch, now))

    def take_if_due(self) -> bool:
        """Take the next epoch without central, if the rules allow it now; whether it was taken."""
        with self._lock:
            is_due = rules.should_take(self._node, self._monotonic())
            if is_due:
                self.take()
            return is_due

    def take(self) -> None:
        """Take the next epoch without central, by order of a person."""
        self._change(rules.take)

    def step_down(self) -> None:
        """Stop leading, to hand over."""
        self._change(rules.step_down)

    def _change(self, rule: Callable[[PairNode, float], PairNode]) -> None:
        with self._lock:
            before = self._node
            after = rule(before, self._monotonic())
            if before.is_leading and not after.is_leading:
                # Stop first: nothing may be executed while the disk is written.
                self._node = replace(before, is_leading=False)
            if after.held != before.held:
                self._buffer.write(pair_state.take_epoch, after.held)
            elif after.known > before.known:
                self._buffer.write(pair_state.learn_epoch, after.known)
            elif before.is_leading and not after.is_leading:
                self._buffer.write(pair_state.stop_leading)
            self._node = after
