"""Verification of the audit log against its seals, piece by piece (`core.audit_seal`).

A piece is a run of batches. The heads link each batch to the one before it, and the newest one is signed with a trusted
key, so all of them are as that key's holder sealed them. Each batch then accounts for the numbers between the highest
one sealed before it and its own highest one.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit_seals
from fieldpost.central.store.notifications.audit_seals import StoredBatch
from fieldpost.core.audit_seal import ENTRY_BYTES, Tampering, TamperingFound, compare_entries, unpack

BATCHES_MAX = 200
ENTRIES_MAX = 20_000
FINDINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class BatchHead:
    """The number and head of a batch."""

    number: int
    head: str


@dataclass(frozen=True, slots=True)
class VerifiedPiece:
    """The result of verifying a run of batches."""

    findings: Sequence[TamperingFound]
    """The first differences, in the order of the log."""
    heads: Sequence[BatchHead]
    entries: int
    """How many sealed entries were checked."""
    next_batch: int | None
    """Where the next piece starts; None after the newest batch."""
    last_batch: int
    """The number of the newest batch; 0 without one."""
    unsealed: int
    """How many entries no batch has sealed yet."""
    as_of: datetime


class AuditVerifier:
    """Verifies the audit log of a store."""

    def __init__(self, store: Store, trusted: Collection[bytes], retention: timedelta) -> None:
        """`trusted` are the public keys of the nodes; entries older than `retention` may have been purged."""
        self._store = store
        self._trusted = trusted
        self._retention = retention

    @property
    def public_keys(self) -> Collection[bytes]:
        return self._trusted

    async def piece(self, first: int = 1) -> VerifiedPiece:
        """Verify batches from this number on, as many as one query may take."""
        return await self._store.read(_piece, first, self._trusted, self._retention, now=self._store.now())

    async def first_since(self, since: datetime) -> int:
        """The first batch sealed at this time or later; the one after the newest if there is none."""
        return await self._store.read(_first_since, since)


def _first_since(conn: Connection, since: datetime) -> int:
    number = audit_seals.first_since(conn, since)
    newest = audit_seals.newest(conn)
    return number if number is not None else (newest.batch.number + 1 if newest else 1)


def _piece(
    conn: Connection, first: int, trusted: Collection[bytes], retention: timedelta, *, now: datetime | None
) -> VerifiedPiece:
    as_of = database_time(conn, now)
    newest = audit_seals.newest(conn)
    last = newest.batch.number if newest else 0
    before = audit_seals.batches_from(conn, first - 1, 1) if first > 1 else []
    before = [one for one in before if one.batch.number == first - 1]
    chosen = _bounded(audit_seals.batches_from(conn, first, BATCHES_MAX))
    findings = [*_chain_findings(first, before, chosen, trusted, last)]
    if newest is not None and chosen:
        findings += _entry_findings(conn, before, chosen, newest, as_of - retention)
    end = chosen[-1].batch.number if chosen else last
    return VerifiedPiece(
        findings[:FINDINGS_MAX],
        [BatchHead(one.batch.number, one.head.hex()) for one in chosen],
        sum(len(one.batch.entries) for one in chosen) // ENTRY_BYTES,
        end + 1 if end < last and chosen else None,
        last,
        audit_seals.count_unsealed(conn),
        as_of,
    )


def _bounded(found: Sequence[StoredBatch]) -> list[StoredBatch]:
    chosen: list[StoredBatch] = []
    size = 0
    for one in found:
        size += len(one.batch.entries) // ENTRY_BYTES
        if chosen and size > ENTRIES_MAX:
            break
        chosen.append(one)
    return chosen


def _chain_findings(
    first: int, before: Sequence[StoredBatch], chosen: Sequence[StoredBatch], trusted: Collection[bytes], last: int
) -> Iterator[TamperingFound]:
    """Batches that are missing, changed, or not signed by a trusted key."""
    if first > 1 and not before and chosen:
        yield _of_batch(Tampering.BATCH_REMOVED, first - 1, "is missing")
    previous = before[0] if before else None
    for one in chosen:
        number = one.batch.number
        wanted = previous.batch.number + 1 if previous else first
        if number != wanted:
            yield _of_batch(Tampering.BATCH_REMOVED, wanted, "is missing")
        elif one.batch.head != one.head or (previous is not None and one.batch.previous != previous.head):
            yield _of_batch(Tampering.BATCH_EDITED, number, "is not as it was sealed")
        elif not _is_signed(one):
            yield _of_batch(Tampering.BATCH_UNSIGNED, number, "has a wrong signature")
        elif number == last and one.batch.public_key not in trusted:
            yield _of_batch(Tampering.BATCH_UNSIGNED, number, "is signed with an unknown key")
        previous = one


def _entry_findings(
    conn: Connection,
    before: Sequence[StoredBatch],
    chosen: Sequence[StoredBatch],
    newest: StoredBatch,
    kept_from: datetime,
) -> list[TamperingFound]:
    first, last = (before[0].high if before else 0) + 1, chosen[-1].high
    sealed = {e.sequence: (one.batch.number, e) for one in chosen for e in unpack(one.batch.entries)}
    late = audit_seals.late_entries(conn, chosen[-1].batch.number, first, last)
    sealed |= {entry.sequence: (number, entry) for number, entry in late}
    stored = audit_seals.stored_entries(conn, first, last)
    early = [sequence for sequence in sealed if sequence < first]  # committed late: their rows are before this range
    for sequence in early:
        stored += audit_seals.stored_entries(conn, sequence, sequence)
    # The purge may have deleted entries since the newest batch was sealed.
    purged_to = audit_seals.purged_to(conn)
    since_sealed = [min(purged_to, kept_from)] if purged_to is not None else []
    signed = [newest.batch.purged_to] if newest.batch.purged_to is not None else []
    return compare_entries(sealed, stored, max([*signed, *since_sealed], default=None), newest.gaps)


def _is_signed(one: StoredBatch) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(one.batch.public_key).verify(one.signature, one.head)
    except (InvalidSignature, ValueError):
        return False
    return True


def _of_batch(kind: Tampering, number: int, text: str) -> TamperingFound:
    return TamperingFound(kind, number, None, None, f"batch {number} {text}")
