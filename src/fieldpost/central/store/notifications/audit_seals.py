"""The seals over the audit log: gathers unsealed entries and reads sealed ones back (`core.audit_seal`)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, LargeBinary, Row, func, select, text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement, database_time
from fieldpost.central.store.schema.audit_tables import audit, audit_purges, audit_seals
from fieldpost.core.audit_seal import (
    BATCH_MAX,
    FIELDS,
    Gap,
    SealBatch,
    SealedEntry,
    StoredEntry,
    entry_hash,
    new_gaps,
    remaining_gaps,
    unpack,
)
from fieldpost.core.times import to_microseconds

_COLUMNS = ", ".join(FIELDS)
_TYPES = {name: audit.c[name].type for name in FIELDS}
_MOMENTS = {"occurred_at", "ingested_at"}


def _text_of(name: str) -> str:
    if name in _MOMENTS:
        return f"cast(cast(extract(epoch from {name}) * 1000000 as bigint) as text)"
    return f"cast({name} as text)"


# PostgreSQL hashes the entries itself: reading twenty columns of each would cost more than the entries' own delivery.
# JSON has another text there, so the few entries with `extra` are hashed here.
_CANONICAL = " || ".join(
    f"coalesce(octet_length({_text_of(name)}) || ':' || {_text_of(name)}, '-')" for name in FIELDS if name != "extra"
)
_HASHED = f"""
    select sequence, event_id, occurred_at,
        case when extra is null then sha256(convert_to({_CANONICAL} || '-', 'UTF8')) end as hash
"""
_HASHED_TYPES = {"sequence": BigInteger, "event_id": Id, "occurred_at": Moment, "hash": LargeBinary}


def _hashing(condition: str, **options: Any) -> Statement:
    return Statement(
        f"{_HASHED} from audit where {condition}",
        sqlite=f"select sequence, event_id, occurred_at, null as hash from audit where {condition}",
        result=_HASHED_TYPES,
        **options,
    )


_after = _hashing("sequence > :high order by sequence limit :limit")
_between = _hashing("sequence between :first and :last order by sequence")
_entries = Statement(
    f"select sequence, {_COLUMNS} from audit where sequence {{any:numbers}}",
    lists={"numbers": "int"},
    result={"sequence": BigInteger, **_TYPES},
)
_horizon = text(
    "select cast(cast(pg_snapshot_xmin(pg_current_snapshot()) as text) as bigint),"
    " cast(cast(pg_snapshot_xmax(pg_current_snapshot()) as text) as bigint)"
)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as stored, with its signature."""

    batch: SealBatch
    head: bytes
    signature: bytes
    high: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Unsealed:
    """The entries of the next batch, and the state after it."""

    last: StoredBatch | None
    entries: Sequence[SealedEntry]
    high: int
    gaps: tuple[Gap, ...]
    purged_to: datetime | None
    now: datetime
    is_more: bool


def unsealed(conn: Connection, *, now: datetime | None) -> Unsealed:
    """The committed entries that are in no batch yet, at most one batch of them."""
    at = database_time(conn, now)
    last = newest(conn)
    high, gaps = (last.high, last.gaps) if last else (0, ())
    ended_to, _ = _transactions(conn)
    late = [row for gap in gaps for row in _between.run(conn, first=gap.first, last=gap.last)]
    fresh = _after.run(conn, high=high, limit=BATCH_MAX)
    _, begun_to = _transactions(conn)
    numbers = [row.sequence for row in fresh]
    open_gaps = remaining_gaps(gaps, [row.sequence for row in late], ended_to, at)
    if conn.dialect.name == "postgresql":  # a writer of SQLite is alone, so nothing commits late there
        open_gaps += new_gaps(high, numbers, begun_to, at)
    hashes = _hashes(conn, [*late, *fresh])
    entries = [SealedEntry(r.sequence, to_microseconds(r.occurred_at), hashes[r.sequence]) for r in (*late, *fresh)]
    high = numbers[-1] if numbers else high
    return Unsealed(last, entries, high, tuple(open_gaps), purged_to(conn), at, len(fresh) == BATCH_MAX)


def purged_to(conn: Connection) -> datetime | None:
    """The latest time up to which a purge has deleted entries."""
    at: datetime | None = conn.execute(select(audit_purges.c.purged_to)).scalar()
    return at


_add_batch = Statement(
    """
    insert into audit_seals (number, sealed_at, previous, purged_to, count, low, high, entries, public_key, head,
        signature, gaps)
    values (:number, :sealed_at, :previous, :purged_to, :count, :low, :high, :entries, :public_key, :head, :signature,
        {json::gaps})
    on conflict (number) do nothing
    """
)


def add_batch(conn: Connection, added: StoredBatch, count: int, low: int) -> bool:
    """Store a batch; False if another node has stored one of this number."""
    batch = added.batch
    _add_batch.run(
        conn,
        **{name: getattr(batch, name) for name in SealBatch.__dataclass_fields__},
        head=added.head,
        signature=added.signature,
        high=added.high,
        gaps=json.dumps(added.gaps),
        count=count,
        low=low,
    )
    stored = conn.execute(select(audit_seals.c.head).where(audit_seals.c.number == batch.number)).scalar_one()
    return bytes(stored) == added.head


def newest(conn: Connection) -> StoredBatch | None:
    row = conn.execute(select(audit_seals).order_by(audit_seals.c.number.desc()).limit(1)).first()
    return _batch(row) if row else None


def batches_from(conn: Connection, number: int, limit: int) -> list[StoredBatch]:
    """The batches from this number on."""
    query = select(audit_seals).where(audit_seals.c.number >= number).order_by(audit_seals.c.number).limit(limit)
    return [_batch(row) for row in conn.execute(query)]


def first_since(conn: Connection, since: datetime) -> int | None:
    """The number of the first batch that was sealed at this time or later."""
    query = select(func.min(audit_seals.c.number)).where(audit_seals.c.sealed_at >= since)
    number: int | None = conn.execute(query).scalar()
    return number


def late_entries(conn: Connection, after: int, first: int, last: int) -> list[tuple[int, SealedEntry]]:
    """The entries of this range of numbers that batches after this one sealed, each with its batch."""
    query = select(audit_seals.c.number, audit_seals.c.entries).where(
        (audit_seals.c.number > after) & (audit_seals.c.low <= last)
    )
    found = conn.execute(query.order_by(audit_seals.c.number)).all()
    return [(row.number, e) for row in found for e in unpack(row.entries) if first <= e.sequence <= last]


def stored_entries(conn: Connection, first: int, last: int) -> list[StoredEntry]:
    """The entries of this range of numbers, hashed as they are now."""
    rows = _between.run(conn, first=first, last=last)
    hashes = _hashes(conn, rows)
    return [StoredEntry(row.sequence, row.event_id, hashes[row.sequence]) for row in rows]


def sealing_stopped_at(conn: Connection) -> datetime | None:
    """The time of the first entry after the sealed ones; None if all are sealed, or nothing was ever sealed."""
    high = conn.execute(select(audit_seals.c.high).order_by(audit_seals.c.number.desc()).limit(1)).scalar()
    if high is None:
        return None
    query = select(audit.c.ingested_at).where(audit.c.sequence > high).order_by(audit.c.sequence).limit(1)
    at: datetime | None = conn.execute(query).scalar()
    return at


def count_unsealed(conn: Connection) -> int:
    """How many entries no batch has sealed yet."""
    last = newest(conn)
    high = last.high if last else 0
    count: int = conn.execute(select(func.count()).where(audit.c.sequence > high)).scalar_one()
    return count


def _hashes(conn: Connection, rows: Iterable[Row[Any]]) -> dict[int, bytes]:
    hashes = {row.sequence: None if row.hash is None else bytes(row.hash) for row in rows}
    missing = [sequence for sequence, hash_ in hashes.items() if hash_ is None]
    read = _entries.run(conn, numbers=missing) if missing else []
    return {**hashes, **{row[0]: entry_hash(row[1:]) for row in read}}  # type: ignore[dict-item]


def _transactions(conn: Connection) -> tuple[int, int]:
    """The oldest transaction still running, and the next one to begin. SQLite has one writer and needs neither."""
    if conn.dialect.name == "sqlite":
        return 0, 0
    oldest, next_ = conn.execute(_horizon).one()
    return oldest, next_


def _batch(row: Row[Any]) -> StoredBatch:
    batch = SealBatch(
        number=row.number,
        sealed_at=row.sealed_at,
        previous=bytes(row.previous),
        purged_to=row.purged_to,
        entries=bytes(row.entries),
        public_key=bytes(row.public_key),
    )
    gaps = tuple(Gap(*gap) for gap in row.gaps)
    return StoredBatch(batch, bytes(row.head), bytes(row.signature), row.high, gaps)
