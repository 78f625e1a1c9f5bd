"""Switches: the epochs under which the nodes of a pair have led, each with its cause. Central keeps them as history."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SwitchCause(StrEnum):
    """Why a node began to lead."""

    GRANTED = "granted"
    """Central granted the epoch."""
    TAKEN = "taken"
    """The node took the epoch without central and has not reported why yet."""
    SILENCE = "silence"
    """The pair was without central, and the leader was silent."""
    CUT_OFF = "cut_off"
    """The node had heard neither central nor the other node for ten minutes."""
    HANDED_OVER = "handed_over"
    """The leader handed over to the node, and central did not answer it."""
    FORCED = "forced"
    """A person forced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSwitch:
    """The begin of an epoch."""

    site: str
    epoch: int
    cause: SwitchCause
    reason: str | None = None
    """The reason given by the person who forced it."""
    taken_at: datetime | None = None
    """By the site's clock, where it was taken without central."""
    recorded_at: datetime
    """By central's clock."""

    @property
    def node(self) -> int:
        """The node that leads under this epoch."""
        return self.epoch % 2

    @property
    def is_taken(self) -> bool:
        """Whether the node took the epoch without central."""
        return self.cause is not SwitchCause.GRANTED
