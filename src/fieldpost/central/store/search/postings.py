"""Reading the places of terms, newest first (see terms.py).

Days are read in windows, the newest day on its own first, so that a common term does not cost a read of a whole year.
On each day that has all terms the rarest term is read. Its places are intersected with those of the other terms where
that is cheap: chunk by chunk if both are many, day by day if both are few. If the rarest term is rare and another is
not, the caller checks the few rows for the other term.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, LargeBinary, Row, Text

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.search.terms import DAY_US, PACKED, day_of, pack, split, unpack
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.times import to_microseconds

_CHUNKS_FIRST, _CHUNKS_MAX = 4, 64
"""How many chunks are read at a time: few at first, since the newest are often sufficient."""
_CHUNKS_COUNTED = 8
_FEW = 256
"""Days with fewer places than this in total are read together."""
_WINDOWS = (1, 7, 30, 100_000)
"""The numbers of days per window."""
_ALL = 1_000_000
_TOP = b"\x7f" * PACKED.size
"""Later than any place."""

_days = Statement(
    "select (select min(day) from search_terms) as first, (select max(day) from search_terms) as last",
    result={"first": Integer, "last": Integer},
)
# The number of places of a term on a day, counted up to a few chunks.
_sizes = Statement(
    f"""
    select u.day, u.term, (
        select cast(sum(length(few.places)) / {PACKED.size} as bigint)
        from (select places from search_terms t where t.day = u.day and t.term = u.term limit {_CHUNKS_COUNTED}) as few
    ) as size
    from {{rows}}
    """,
    rows={"day": "int", "term": "text"},
    result={"day": Integer, "term": Text, "size": Integer},
)
# A chunk is of use when its oldest place is older than where the search has come to.
_USEFUL = f"""
    t.newest >= :since and (t.newest, t.sweep) < (:newest, :sweep)
    and substr(t.places, length(t.places) - {PACKED.size - 1}) < :before
    order by t.newest desc, t.sweep desc limit :limit
"""
_chunks_of_day = Statement(
    f"select t.newest, t.sweep, t.places from search_terms t where t.day = :day and t.term = :term and {_USEFUL}",
    result={"newest": LargeBinary, "sweep": Integer, "places": LargeBinary},
)
_chunks_of_days = Statement(
    f"""
    select t.newest, t.sweep, t.places from {{rows}} join search_terms t on t.day = u.day and t.term = u.term
    where {_USEFUL}
    """,
    rows={"day": "int", "term": "text"},
    result={"newest": LargeBinary, "sweep": Integer, "places": LargeBinary},
)


@dataclass(frozen=True, slots=True)
class Places:
    """A part of the result, newest first, and how many places were read for it."""

    found: list[PageKey]
    read: int
    end: PageKey
    """All places down to this one were read."""


def places(conn: Connection, terms: Sequence[str], since: datetime | None, before: PageKey) -> Iterator[Places]:
    """The places that may have all these terms, older than `before`, newest first, as they are read."""
    known = _days.run(conn)[0]
    if known.first is None:
        return
    low = PACKED.pack(to_microseconds(since), bytes(16)) if since is not None else b""
    high = pack(before)
    day = min(day_of(before[0]), known.last)
    last = known.first if since is None else max(known.first, day_of(since))
    seen = dict.fromkeys(terms, 0)
    for length in _WINDOWS:
        for days in _together(_days_with(conn, range(day, max(day - length, last - 1), -1), seen)):
            read = _of_many(conn, days[0], low, high) if days[0].size >= _FEW else _of_few(conn, days, low, high)
            for found, count, end in read:
                yield Places([unpack(place) for place in found], count, unpack(end))
        day -= length
        if day < last:
            return


_Read = tuple[list[bytes], int, bytes]
"""Packed places, newest first, how many were read to find them, and the last of those."""


@dataclass(frozen=True, slots=True)
class _Day:
    """A day that has all terms: the rarest with its number of places, and the others with theirs."""

    day: int
    term: str
    size: int
    others: dict[str, int]


def _days_with(conn: Connection, days: Iterable[int], seen: dict[str, int]) -> list[_Day]:
    """The days that have all terms, newest first. `seen` counts the places of each term so far: the rarest term is
    queried first, and the others only for its days."""
    sizes: dict[int, dict[str, int]] = {day: {} for day in days}
    for term in sorted(seen, key=seen.__getitem__):
        found = {row.day: row.size for row in _sizes.run(conn, [(day, term) for day in sizes]) if row.size}
        sizes = {day: known | {term: found[day]} for day, known in sizes.items() if day in found}
        seen[term] += sum(found.values())
        if not sizes:
            return []
    rarest = {day: min(known, key=known.__getitem__) for day, known in sizes.items()}
    return [_Day(day, rarest[day], sizes[day].pop(rarest[day]), sizes[day]) for day in sorted(sizes, reverse=True)]


def _together(days: Iterable[_Day]) -> Iterator[list[_Day]]:
    """Groups of days with few places; a day with many is its own group."""
    few: list[_Day] = []
    for day in days:
        if few and sum(one.size for one in few) + day.size >= _FEW:
            yield few
            few = []
        few.append(day)
    if few:
        yield few


def _of_many(conn: Connection, day: _Day, low: bytes, high: bytes) -> Iterator[_Read]:
    """The places of a day's rarest term that have the other terms too."""
    for known, read, end in _read(conn, [(day.day, day.term)], low, high, _CHUNKS_FIRST):
        found, count = set(known), read
        for term in day.others:
            if not found:
                break
            after = (int.from_bytes(max(found), "big") + 1).to_bytes(PACKED.size, "big")
            chunks = _chunks_of_day.run(
                conn, day=day.day, term=term, since=min(found), before=after, newest=_TOP, sweep=0, limit=_ALL
            )
            theirs = _all_of(chunks)
            count += len(theirs)
            found &= theirs
        yield sorted(found, reverse=True), count, end


def _of_few(conn: Connection, days: Sequence[_Day], low: bytes, high: bytes) -> Iterator[_Read]:
    """The places of these days' rarest terms, without those that another rare term lacks."""
    excluding: list[tuple[set[int], set[bytes]]] = []
    count = 0
    for term in {other for day in days for other in day.others}:
        rare = {day.day for day in days if day.others.get(term, _FEW) < _FEW}
        if rare:
            pairs = [(day, term) for day in rare]
            chunks = _chunks_of_days.run(conn, pairs, since=low, before=high, newest=_TOP, sweep=0, limit=_ALL)
            excluding.append((rare, _all_of(chunks)))
            count += len(excluding[-1][1])
    for known, read, end in _read(conn, [(day.day, day.term) for day in days], low, high, _CHUNKS_MAX):
        found = known
        for rare, theirs in excluding:
            found = [place for place in found if place in theirs or _day_of(place) not in rare]
        yield found, read + count, end
        count = 0


def _read(conn: Connection, pairs: Sequence[tuple[int, str]], low: bytes, high: bytes, limit: int) -> Iterator[_Read]:
    """The places of these days' terms, newest first, chunk by chunk."""
    newest, sweep = _TOP, 0
    waiting: set[bytes] = set()
    while True:
        wanted: dict[str, Any] = {"since": low, "newest": newest, "sweep": sweep, "before": high, "limit": limit}
        if len(pairs) == 1:
            # Only this form makes a database start in the index at the given chunk.
            chunks = _chunks_of_day.run(conn, day=pairs[0][0], term=pairs[0][1], **wanted)
        else:
            chunks = _chunks_of_days.run(conn, pairs, **wanted)
        waiting |= _all_of(chunks)
        is_last = len(chunks) < limit
        if chunks:
            newest, sweep = bytes(chunks[-1].newest), chunks[-1].sweep
        # Places older than the last chunk read may belong between places of the next one.
        known = sorted((p for p in waiting if low <= p < high and (is_last or p >= newest)), reverse=True)
        if known:
            yield known, len(known), known[-1]
        if is_last:
            return
        high = min(high, newest)
        waiting = {place for place in waiting if place < newest}
        limit = min(2 * limit, _CHUNKS_MAX)


def _day_of(place: bytes) -> int:
    return int.from_bytes(place[:8], "big") // DAY_US


def _all_of(chunks: Sequence[Row[Any]]) -> set[bytes]:
    return {place for chunk in chunks for place in split(chunk.places)}
