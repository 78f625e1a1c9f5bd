"""Seals over the audit log, which reveal any later change of an entry.

Theory of operation. Entries are numbered as they are inserted (`sequence`). The leading node gathers committed entries
into batches. A batch records the number, time and SHA-256 of each of its entries and the head of the batch before it.
Its own head is the SHA-256 over all of that, signed with a key that is not in the database. To change an entry,
a batch or their order, one must compute every later head again and cannot sign it.

An entry whose transaction commits late has a lower number than entries sealed before it: it joins a later batch. Until
its transaction has certainly ended, a missing number is a *gap* and is read again. A purged entry leaves its hash in
its batch; the batch states up to which time the purge has deleted entries, so a younger entry that is missing was
removed.
"""

import hashlib
import json
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from fieldpost.core.times import from_microseconds, to_microseconds

FIELDS = (
    "event_id",
    "occurred_at",
    "ingested_at",
    "correlation_id",
    "execution_id",
    "parent_execution_id",
    "channel",
    "kind",
    "status",
    "source_site_id",
    "source_node",
    "source_instance_id",
    "source_script",
    "actor",
    "target",
    "duration_ms",
    "error_message",
    "request_summary",
    "response_summary",
    "bulk_action_id",
    "extra",
)
"""The columns of an entry in the order of its canonical bytes."""
BATCH_MAX = 5_000
FIRST_PREVIOUS = bytes(32)
"""The head before the first batch."""
GAP_KEPT = timedelta(minutes=10)
"""The minimum time for which a missing number stays a gap."""
_ENTRY = struct.Struct(">QQ32s")
ENTRY_BYTES = _ENTRY.size
"""The size of one packed entry."""


def canonical_bytes(values: Iterable[object]) -> bytes:
    """An entry as bytes: each field as its length in bytes, a colon and its text, or `-` for null.

    Times are microseconds since 1970, numbers are decimal, JSON has sorted keys and no spaces.
    """
    return b"".join(_field(value) for value in values)


def _field(value: object) -> bytes:
    match value:
        case None:
            return b"-"
        case str():
            text = value
        case datetime():
            text = str(to_microseconds(value))
        case int():
            text = str(value)
        case _:
            text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    data = text.encode()
    return b"%d:%b" % (len(data), data)


def entry_hash(values: Iterable[object]) -> bytes:
    """The hash of an entry, from its values in the order of FIELDS."""
    return hashlib.sha256(canonical_bytes(values)).digest()


class SealedEntry(NamedTuple):
    """The record of an entry in a batch."""

    sequence: int
    occurred_us: int
    hash: bytes


def pack(entries: Iterable[SealedEntry]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def unpack(data: bytes) -> list[SealedEntry]:
    return list(map(SealedEntry._make, _ENTRY.iter_unpack(data)))


def merge(packed: Iterable[bytes]) -> bytes:
    """Packed entries in one, in the order of their numbers."""
    parts = [part for part in packed if part]
    return parts[0] if len(parts) == 1 else pack(sorted(entry for part in parts for entry in unpack(part)))


def numbers_in(data: bytes) -> Sequence[int]:
    """The numbers of packed entries, which are in ascending order."""
    if not data:
        return ()
    count = len(data) // ENTRY_BYTES
    first, last = _ENTRY.unpack_from(data)[0], _ENTRY.unpack_from(data, len(data) - ENTRY_BYTES)[0]
    if last - first == count - 1:  # as almost always: nothing to unpack
        return range(first, last + 1)
    return [number for number, _, _ in _ENTRY.iter_unpack(data)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealBatch:
    """A batch of sealed entries, before it is signed."""

    number: int
    sealed_at: datetime
    previous: bytes
    """The head of the batch before it."""
    purged_to: datetime | None
    """Entries from before this time may have been purged."""
    entries: bytes
    """The entries, packed, in the order of their numbers."""
    public_key: bytes
    """The key that verifies the signature."""

    @property
    def head(self) -> bytes:
        """The hash that is signed, and that the next batch refers to."""
        return entry_hash(
            (
                "fieldpost audit batch 1",
                self.number,
                self.sealed_at,
                self.previous.hex(),
                self.purged_to,
                hashlib.sha256(self.entries).hexdigest(),
                self.public_key.hex(),
            )
        )


class Gap(NamedTuple):
    """Numbers that were missing when the sealer read past them."""

    first: int
    last: int
    horizon: int
    """Transactions from this one on began after the gap was seen."""
    seen_us: int


def new_gaps(high: int, found: Sequence[int], horizon: int, now: datetime) -> list[Gap]:
    """The numbers after `high` that are missing among these, which are in ascending order."""
    if not found or found[-1] - high == len(found):
        return []
    seen_us = to_microseconds(now)
    return [Gap(a + 1, b - 1, horizon, seen_us) for a, b in pairwise((high, *found)) if b > a + 1]


def remaining_gaps(gaps: Iterable[Gap], found: Sequence[int], ended_to: int, now: datetime) -> list[Gap]:
    """The gaps that may still be filled, without the numbers found in them by now.

    `ended_to` is the oldest transaction that was still running before the gaps were read again.
    """
    oldest_us = to_microseconds(now - GAP_KEPT)
    return [
        part
        for gap in gaps
        if gap.horizon > ended_to or gap.seen_us > oldest_us
        for part in _without(gap, found[bisect_left(found, gap.first) : bisect_left(found, gap.last + 1)])
    ]


def _without(gap: Gap, found: Sequence[int]) -> Iterator[Gap]:
    first = gap.first
    for number in (*found, gap.last + 1):
        if number > first:
            yield gap._replace(first=first, last=number - 1)
        first = number + 1


class Tampering(StrEnum):
    """The kind of tampering with an entry or a batch."""

    EDITED = "edited"
    REMOVED = "removed"
    INSERTED = "inserted"
    REORDERED = "reordered"
    BATCH_EDITED = "batch_edited"
    BATCH_REMOVED = "batch_removed"
    BATCH_UNSIGNED = "batch_unsigned"
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True)
class TamperingFound:
    """One finding of a verification."""

    kind: Tampering
    batch: int | None
    sequence: int | None
    event_id: str | None
    text: str


class StoredEntry(NamedTuple):
    """An entry as it is in the database now."""

    sequence: int
    event_id: str
    hash: bytes


def compare_entries(
    sealed: Mapping[int, tuple[int, SealedEntry]],
    stored: Sequence[StoredEntry],
    purged_to: datetime | None,
    is_open: Iterable[Gap],
) -> list[TamperingFound]:
    """The differences between sealed entries, each with its batch, and the stored ones of the same range of numbers."""
    by_hash = {entry.hash: (batch, entry) for batch, entry in sealed.values()}
    found = []
    for row in stored:
        batch, entry = sealed.get(row.sequence, (None, None))
        other = by_hash.get(row.hash)
        if entry is not None and entry.hash == row.hash:
            continue
        if other is not None:
            text = f"entry {row.sequence} was sealed as entry {other[1].sequence} of batch {other[0]}"
            found.append(TamperingFound(Tampering.REORDERED, other[0], row.sequence, row.event_id, text))
        elif entry is not None:
            text = f"entry {row.sequence} differs from what batch {batch} sealed"
            found.append(TamperingFound(Tampering.EDITED, batch, row.sequence, row.event_id, text))
        elif not any(gap.first <= row.sequence <= gap.last for gap in is_open):
            text = f"entry {row.sequence} is in no batch, but entries after it are sealed"
            found.append(TamperingFound(Tampering.INSERTED, None, row.sequence, row.event_id, text))
    kept_us = 0 if purged_to is None else to_microseconds(purged_to)
    stored_numbers = {row.sequence for row in stored}
    for sequence, (batch, entry) in sealed.items():
        if sequence not in stored_numbers and entry.occurred_us >= kept_us:
            at = from_microseconds(entry.occurred_us)
            text = f"entry {sequence} of {at:%Y-%m-%d %H:%M:%S} UTC is missing, but batch {batch} sealed it"
            found.append(TamperingFound(Tampering.REMOVED, batch, sequence, None, text))
    return sorted(found, key=lambda one: one.sequence or 0)
