"""The state of a node of a pair, as status, API and doctor show it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.errors import Conflict
from fieldpost.core.pair.leadership import SILENCE_S
from fieldpost.link.messages import PairHealth
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication

LAG_WARNING_S = 5.0
PairRole = Literal["leader", "standby"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """This node and its view of the other one."""

    role: PairRole
    node: int
    epoch: int
    """The highest epoch that this node knows."""
    grounds: str | None
    """Why the leader executes: lease, peer or alone; None if it does not."""
    peer: str
    """The address of the other node."""
    peer_age_s: float | None
    """How long ago it was heard; None if never since the agent's start."""
    peer_version: str | None
    lag_changes: int
    lag_s: float
    switched_at: str | None
    switch_reason: str | None
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The result of comparing the rows of both nodes on demand."""

    compared: int
    """Ranges of up to 5,000 rows that were compared."""
    repaired: int
    """Those that differed and were copied again."""
    skipped: int
    """Those that were not compared, because a node was busy all the time."""


def live_status(health: PairHealth, peer: str) -> PairStatus:
    """The state of a node with a running agent."""
    return PairStatus(
        role="leader" if health.is_leading else "standby",
        node=health.node,
        epoch=health.known,
        grounds=health.grounds,
        peer=peer,
        peer_age_s=health.peer_age_s,
        peer_version=health.peer_version,
        lag_changes=health.lag_changes,
        lag_s=health.lag_s,
        switched_at=health.switched_at,
        switch_reason=health.switch_reason,
        differences=health.differences,
    )


def stored_status(buffer: Buffer, peer: str) -> PairStatus | None:
    """The state of a node as its buffer has it, without an agent; None for a single site."""
    state = buffer.read(pair_state.find)
    if state is None:
        return None
    switch = buffer.read(pair_state.last_switch)
    return PairStatus(
        role="leader" if state.is_leading else "standby",
        node=state.node,
        epoch=state.known,
        grounds=None,
        peer=peer,
        peer_age_s=None,
        peer_version=None,
        lag_changes=buffer.read(replication.behind, buffer.read(pair_state.acked)),
        lag_s=0.0,
        switched_at=None if switch is None else switch.at,
        switch_reason=None if switch is None else switch.reason,
        differences=(),
    )


def pair_checks(pair: PairStatus, *, has_agent: bool) -> Iterator[Check]:
    """The checks of `site doctor` for a node of a pair; without an agent only the stored state is known."""
    executes = "" if pair.grounds is None else f", executes by {pair.grounds}"
    yield Check("pair", CheckVerdict.OK, f"node {pair.node}, {pair.role}, epoch {pair.epoch}{executes}")
    if not has_agent:
        return
    is_heard = pair.peer_age_s is not None and pair.peer_age_s < SILENCE_S
    heard = "was not heard yet" if pair.peer_age_s is None else f"was heard {pair.peer_age_s:g} s ago"
    verdict = CheckVerdict.OK if is_heard else CheckVerdict.FAILING
    yield Check("other node", verdict, f"the node at {pair.peer} {heard}")
    is_late = pair.lag_s > LAG_WARNING_S
    lag = f"the other node lacks {pair.lag_changes} changes, the oldest for {pair.lag_s:g} s"
    yield Check("lag", CheckVerdict.WARNING if is_late else CheckVerdict.OK, lag if pair.lag_changes else "none")
    if pair.differences:
        detail = f"the nodes differ in {', '.join(pair.differences)}"
        yield Check("differences", CheckVerdict.WARNING, detail)
    elif is_heard:
        yield Check("differences", CheckVerdict.OK, "definitions, secrets, clocks and versions are the same")


def refuse_on_standby(buffer: Buffer, peer: str) -> None:
    """Raise Conflict on the standby of a pair, naming where to run the command."""
    state = buffer.read(pair_state.find)
    if state is not None and not state.is_leading:
        raise Conflict(
            "pair.standby", "this node of the pair is the standby", hint=f"run the command on the other node, at {peer}"
        )
