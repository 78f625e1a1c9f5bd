"""The seals over the audit log: gathers unsealed entries and reads sealed ones back (`core.audit_seal`)."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, LargeBinary, Row, func, select, text

from fieldpost.central.store.engine.column_types import Id
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
    merge,
    new_gaps,
    numbers_in,
    pack,
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


# The databases build the canonical bytes, and PostgreSQL hashes them too: reading twenty columns of each entry would
# cost more than the entry's own delivery. JSON has another text there, so the few entries with `extra` are hashed here.
_HASH = "sha256(convert_to({} || '-', 'UTF8'))".format(
    " || ".join(
        f"coalesce(octet_length({_text_of(name)}) || ':' || {_text_of(name)}, '-')"
        for name in FIELDS
        if name != "extra"
    )
)
_SQLITE_TEXT = " || ".join(
    f"coalesce(length(cast({name} as blob)) || ':' || {name}, '-')" for name in FIELDS if name != "extra"
)
_PACKED = f"int8send(sequence) || int8send(cast({_text_of('occurred_at')} as bigint)) || {_HASH}"


def _packing(condition: str) -> Statement:
    """Entries as they are sealed, in one row: packed on PostgreSQL, and on SQLite as canonical texts in one value."""
    return Statement(
        f"""
        select coalesce(string_agg({_PACKED}, ''::bytea order by sequence) filter (where extra is null), ''::bytea)
            as packed, string_agg(cast(sequence as text), ',') filter (where extra is not null) as others
        from (select * from audit where {condition}) as found
        """,
        sqlite=f"""
        select group_concat(sequence) filter (where canonical is not null) as numbers,
            group_concat(occurred_at) filter (where canonical is not null) as moments,
            group_concat(length(cast(canonical as blob))) filter (where canonical is not null) as lengths,
            group_concat(canonical, '') as texts, group_concat(sequence) filter (where canonical is null) as others
        from (
            select sequence, occurred_at, case when extra is null then {_SQLITE_TEXT} || '-' end as canonical
            from audit where {condition}
        ) as found
        """,
    )


_after = _packing("sequence > :high order by sequence limit :limit")
_late = _packing("sequence between :first and :last order by sequence")
_between = Statement(
    f"""
    select sequence, event_id, case when extra is null then {_HASH} end as hash
    from audit where sequence between :first and :last order by sequence
    """,
    sqlite="""
    select sequence, event_id, null as hash from audit where sequence between :first and :last order by sequence
    """,
    result={"sequence": BigInteger, "event_id": Id, "hash": LargeBinary},
)
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
    entries: bytes
    """Packed, in the order of their numbers."""
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
    late = merge(_packed(conn, _late, first=gap.first, last=gap.last) for gap in gaps)
    fresh = _packed(conn, _after, high=high, limit=BATCH_MAX)
    _, begun_to = _transactions(conn)
    numbers = numbers_in(fresh)
    open_gaps = remaining_gaps(gaps, numbers_in(late), ended_to, at)
    if conn.dialect.name == "postgresql":  # a writer of SQLite is alone, so nothing commits late there
        open_gaps += new_gaps(high, numbers, begun_to, at)
    high = numbers[-1] if numbers else high
    is_more = len(numbers) == BATCH_MAX
    return Unsealed(last, merge((late, fresh)), high, tuple(open_gaps), purged_to(conn), at, is_more)


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


def _packed(conn: Connection, packing: Statement, **params: Any) -> bytes:
    """The entries that the statement finds, packed in the order of their numbers."""
    (row,) = packing.run(conn, **params)
    found = bytes(row.packed) if conn.dialect.name == "postgresql" else pack(_hashed(row))
    if not (unhashed := _numbers(row.others)):
        return found
    read = _entries.run(conn, numbers=unhashed)
    others = (SealedEntry(row[0], to_microseconds(row.occurred_at), entry_hash(row[1:])) for row in read)
    return merge((found, pack(sorted(others))))


def _hashed(row: Row[Any]) -> Iterator[SealedEntry]:
    """The entries that SQLite returned as canonical texts in one value."""
    data, start = (row.texts or "").encode(), 0
    for sequence, occurred_us, length in zip(*map(_numbers, (row.numbers, row.moments, row.lengths)), strict=True):
        yield SealedEntry(sequence, occurred_us, hashlib.sha256(data[start : start + length]).digest())
        start += length


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []


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
