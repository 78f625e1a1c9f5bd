"""Deleting what has been kept long enough: by its own condition, with all that belongs to it, in bounded batches."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.purging import BEGINNING, DatedTable, PurgedBatch, PurgeRange
from fieldpost.central.store.notifications import audit, retention
from fieldpost.core.audit import AuditEntry, AuditKind, AuditStatus
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.ids import new_id
from fieldpost.testing import ManualClock
from support.centre import Centre

YEAR = timedelta(days=365)


def span(clock: ManualClock, limit: int = 100, after: datetime = BEGINNING, retention: timedelta = YEAR) -> PurgeRange:
    return PurgeRange(clock.now() - retention, after, limit, clock.now())


async def purge(centre: Centre, clock: ManualClock, limit: int = 100, after: datetime = BEGINNING) -> PurgedBatch:
    return await centre.store.write(retention.purge_notifications, span(clock, limit, after))


async def count(centre: Centre, table: str) -> int:
    def look(conn: Connection) -> int:
        return conn.execute(text(f"select count(*) from {table}")).scalar_one()

    return await centre.store.read(look)


async def delivered(centre: Centre, number: int = 1) -> list[str]:
    sent = await centre.send_many(number)
    await centre.deliver(slots_per_key=64)
    return sent


@pytest.mark.req("DEC-18", "CFG-01")
async def test_purged_row_is_deleted_with_targets_and_attempts_and_leaves_a_tombstone(
    mailing: Centre, clock: ManualClock
) -> None:
    (sent,) = await delivered(mailing)
    terminal_at = (await mailing.get(sent)).terminal_at
    clock.advance(YEAR.total_seconds())
    assert await purge(mailing, clock) == PurgedBatch(0, None), "at the very end of the retention it is still there"
    clock.advance(1)
    assert await purge(mailing, clock) == PurgedBatch(1, None)
    assert [await count(mailing, table) for table in ("notifications", "targets", "attempts", "tombstones")] == [
        0,
        0,
        0,
        1,
    ]

    def look(conn: Connection) -> tuple[str, str, str]:
        return tuple(conn.execute(text("select notification_id, source_site_id, status from tombstones")).one())  # type: ignore[return-value]

    found, site, status = await mailing.store.read(look)
    assert (str(found), site, status) == (sent, "plant-7", "delivered")
    assert terminal_at is not None


@pytest.mark.req("DEC-18", "RES-33")
async def test_retention_counts_from_the_time_a_row_became_terminal(mailing: Centre, clock: ManualClock) -> None:
    """Not from its creation: what parked yesterday after a year of retries stays a year from yesterday."""
    sent = await mailing.send()
    clock.advance(2 * YEAR.total_seconds())
    mailing.adapter.answer("ops", PermanentFailure("550 unknown"))
    await mailing.deliver()
    clock.advance(YEAR.total_seconds() - 1)
    assert (await purge(mailing, clock)).deleted == 0
    clock.advance(2)
    assert (await purge(mailing, clock)).deleted == 1
    assert await count(mailing, f"tombstones where notification_id = '{sent}' and status = 'parked'") == 1


@pytest.mark.req("CFG-01", "LIF-01")
async def test_pending_and_retrying_rows_are_never_deleted(mailing: Centre, clock: ManualClock) -> None:
    pending, retrying = await mailing.send_many(2)
    await mailing.execute(
        "update notifications set status = 'retrying', last_error = 'x', next_attempt_at = created_at"
        f" where notification_id = '{retrying}'"
    )
    clock.advance(100 * YEAR.total_seconds())
    assert (await purge(mailing, clock)).deleted == 0
    assert {(await mailing.get(sent)).status.value for sent in (pending, retrying)} == {"pending", "retrying"}


@pytest.mark.req("DEC-18")
async def test_batch_is_limited_and_the_next_continues_after_it(mailing: Centre, clock: ManualClock) -> None:
    for _ in range(5):
        await delivered(mailing, 2)
        clock.advance(60)
    clock.advance(YEAR.total_seconds())
    left, after = 10, BEGINNING
    for expected in (4, 4, 2):
        batch = await purge(mailing, clock, 4, after)
        assert batch.deleted == expected
        left -= expected
        assert await count(mailing, "notifications") == left
        after = batch.after or after
    assert batch.after is None


async def test_rows_of_the_same_time_are_all_found_with_any_batch_size(mailing: Centre, clock: ManualClock) -> None:
    await delivered(mailing, 7)
    clock.advance(YEAR.total_seconds() + 1)
    after: datetime | None = BEGINNING
    while after is not None:
        after = (await purge(mailing, clock, 2, after)).after
    assert await count(mailing, "notifications") == 0


@pytest.mark.req("DEC-18")
async def test_locked_row_is_left_for_the_next_purge(pg_url: str, clock: ManualClock) -> None:
    """On PostgreSQL, where others write at the same time: an operator's open transaction is not waited for."""
    from support.centre import open_centre

    async with open_centre(pg_url, clock) as centre, open_centre(pg_url, clock) as other:
        await centre.add_channel()
        await centre.add_list()
        locked, free = await delivered(centre, 2)
        clock.advance(YEAR.total_seconds() + 1)

        async with other.store._engine.connect() as conn:  # type: ignore[attr-defined]
            await conn.execute(
                text("select 1 from notifications where notification_id = :id for update"), {"id": locked}
            )
            assert (await purge(centre, clock)).deleted == 1
            await conn.rollback()
        assert (await centre.get(locked)).notification_id == locked
        assert await count(centre, f"tombstones where notification_id = '{free}'") == 1
        assert (await purge(centre, clock)).deleted == 1


async def test_audit_entries_are_kept_as_long_as_their_row(mailing: Centre, clock: ManualClock) -> None:
    await delivered(mailing, 2)
    parked_at_site = AuditEntry(
        event_id=new_id(clock.now(), bytes(10)),
        occurred_at=clock.now(),
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        actor="admin",
    )
    await mailing.store.write(audit.add, [parked_at_site])
    assert await count(mailing, "audit") == 7
    clock.advance(YEAR.total_seconds() + 10)
    assert await mailing.store.write(retention.purge_audit, span(clock)) == PurgedBatch(1, None), (
        "the one that has no row"
    )
    await purge(mailing, clock)
    assert (await mailing.store.write(retention.purge_audit, span(clock, 4))).deleted == 4
    assert (await mailing.store.write(retention.purge_audit, span(clock, 4))).deleted == 2
    assert await count(mailing, "audit") == 0


async def test_recent_audit_entries_are_kept_after_their_row_was_deleted(mailing: Centre, clock: ManualClock) -> None:
    await delivered(mailing)
    clock.advance(10)
    await mailing.store.write(retention.purge_notifications, span(clock, retention=timedelta(seconds=5)))
    assert await count(mailing, "notifications") == 0
    assert (await mailing.store.write(retention.purge_audit, span(clock))).deleted == 0
    assert await count(mailing, "audit") == 3


@pytest.mark.parametrize(
    ("dated", "table", "row"),
    [
        (
            retention.TOMBSTONES,
            "tombstones",
            "(notification_id, source_site_id, digest, status, terminal_at, purged_at)"
            " values ('019b76da-a800-7000-8000-00000000000{n}', 'plant-7', {blob}, 'delivered', {at}, {at})",
        ),
        (retention.SAMPLES, "samples", "(site, taken_at, figures) values ('s{n}', {at}, '{{}}')"),
        (
            retention.NODES,
            "nodes",
            "(node_id, host, version, started_at, heartbeat_at) values ('n{n}', 'h', '1', {at}, {at})",
        ),
    ],
    ids=["tombstones", "samples", "nodes"],
)
async def test_dated_rows_are_purged_oldest_first(
    centre: Centre, clock: ManualClock, dated: DatedTable, table: str, row: str
) -> None:
    for n in range(6):
        moment = clock.now() + timedelta(seconds=n // 2)  # two of each moment
        at = f"'{moment.isoformat()}'" if centre.is_postgresql else str(int(moment.timestamp() * 1e6))
        blob = "'\\x00'" if centre.is_postgresql else "x'00'"
        await centre.execute(f"insert into {table} {row.format(n=n, at=at, blob=blob)}")
    clock.advance(YEAR.total_seconds() + 2)  # those of the last moment are at the very end of the retention
    first = await centre.store.write(dated.purge, span(clock, 3))
    assert (first.deleted, first.after) == (4, BEGINNING), "rows of one moment go together"
    assert await centre.store.write(dated.purge, span(clock, 3)) == PurgedBatch(0, None)
    assert await count(centre, table) == 2
