"""What rooms tell about their work to whoever counts it, so that none of them has to know who that is.

Ingest and dispatch are handed a meter and tell it what they did; the metrics of `central.watch` are one. Telling must
be cheap and must never fail.
"""

from typing import Protocol


class Meter(Protocol):
    """Hears of the work of one node."""

    def submitted(self, verdict: str, count: int) -> None:
        """So many submitted items got this verdict."""

    def claimed(self, lane: str, count: int) -> None:
        """So many rows were claimed from this lane."""

    def flying(self, count: int) -> None:
        """So many attempts are under way now."""

    def finished(self, type: str, outcome: str, duration_s: float) -> None:
        """An attempt of this type came to this outcome, and that is written."""

    def late(self) -> None:
        """An outcome came after its claim was lost, and changed nothing."""

    def swept(self, duration_s: float) -> None:
        """The dispatcher has looked for due rows and taken what it could."""


class Unmetered:
    """Counts nothing."""

    def submitted(self, verdict: str, count: int) -> None:
        pass

    def claimed(self, lane: str, count: int) -> None:
        pass

    def flying(self, count: int) -> None:
        pass

    def finished(self, type: str, outcome: str, duration_s: float) -> None:
        pass

    def late(self) -> None:
        pass

    def swept(self, duration_s: float) -> None:
        pass
