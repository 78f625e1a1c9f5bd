"""Comparing the rows of both nodes of a pair, range by range, by digests.

Each node compares the rows of which its state counts: the leader all kinds, the standby its own notifications. A range
is compared while both nodes have all changes of each other. If one of them is busy, the range is tried again, a few
times; the next round compares it otherwise.
"""

from fieldpost.link.pair_messages import DigestCheck, DigestVerdict
from fieldpost.link.pair_rows import ROW_KINDS, RowKind
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import replication

DIGEST_ROWS = 5_000
"""How many rows one digest covers."""
BUSY_MAX = 50
"""How often a range is tried while one of the nodes is busy."""


class RangeChecks:
    """The comparisons of one connection."""

    def __init__(self, buffer: Buffer, rows_max: int = DIGEST_ROWS) -> None:
        self._buffer = buffer
        self._rows_max = rows_max
        self._place: tuple[RowKind, str] | None = None
        """The range that is compared next; None between two rounds."""
        self._open: DigestCheck | None = None
        """The comparison without an answer."""
        self._tries = 0
        self.compared = 0
        """Ranges that were compared, and were equal or have been copied again."""
        self.skipped = 0
        """Ranges that were not compared, because a node was busy."""
        self.repaired = 0
        """Ranges that differed."""
        self._reported = 0

    @property
    def is_running(self) -> bool:
        """Whether a round has not ended."""
        return self._place is not None or self._open is not None

    def begin(self) -> None:
        """Begin a round: compare all ranges while nothing else is to be sent."""
        self._place = (ROW_KINDS[0], "")

    def take_repaired(self) -> int:
        """How many ranges have differed since the last call."""
        repaired = self.repaired
        count, self._reported = repaired - self._reported, repaired
        return count

    def stop(self) -> None:
        """End the round: the other node has refused a message."""
        self._place = self._open = None

    def next(self) -> DigestCheck | None:
        """The comparison to send now; None between two rounds."""
        if self._place is None:
            return None
        kind, after = self._place
        self._open = self._buffer.read(replication.read_check, kind, after, self._rows_max)
        if self._open is None:
            self._place = None
            return None
        following = ROW_KINDS.index(kind) + 1
        if self._open.until is not None:
            self._place = kind, self._open.until
        else:
            self._place = (ROW_KINDS[following], "") if following < len(ROW_KINDS) else None
        return self._open

    def answered(self, verdict: DigestVerdict) -> DigestCheck | None:
        """Take in the answer to the last comparison; returns it if the range differs and must be copied again."""
        check, self._open = self._open, None
        if check is None:
            return None
        if verdict == "busy" and self._tries < BUSY_MAX:
            self._tries += 1
            self._place = check.kind, check.after
            return None
        self._tries = 0
        if verdict == "busy":
            self.skipped += 1
            return None
        self.compared += 1
        if verdict == "equal":
            return None
        self.repaired += 1
        return check
