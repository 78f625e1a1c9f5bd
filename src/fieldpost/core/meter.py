"""The interface by which ingest and dispatch count their work.

`central.watch` implements it with its metrics. Calls must be cheap and must never fail.
"""

from typing import Protocol


class Meter(Protocol):
    """Counts the work of one node. The methods here do nothing."""

    def submitted(self, verdict: str, count: int) -> None:
        """`count` submitted items got this verdict."""
        return

    def claimed(self, lane: str, count: int) -> None:
        """`count` notifications were claimed from this lane."""
        return

    def flying(self, count: int) -> None:
        """`count` attempts are running now."""
        return

    def finished(self, type: str, outcome: str, duration_s: float) -> None:
        """The outcome of an attempt of this type was written."""
        return

    def late(self) -> None:
        """An outcome arrived after its claim was lost and changed nothing."""
        return

    def swept(self, duration_s: float) -> None:
        """The dispatcher finished a sweep."""
        return


class Unmetered(Meter):
    """Counts nothing."""
