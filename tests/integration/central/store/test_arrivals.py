"""Taking notifications in: insert-if-absent, what stood there already, and every column of a row."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.notifications import arrivals
from fieldpost.central.store.notifications.arrivals import StoredContent
from fieldpost.core.ids import NotificationId, new_id
from fieldpost.core.notification import Notification, Provenance, Status, Submission, digest
from fieldpost.core.times import to_text
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre

ENQUEUED = datetime(2025, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)


def submission(
    number: int, subject: str = "Pump 3 stopped", site: str = SITE, enqueued_at: str | None = to_text(ENQUEUED)
) -> Submission:
    made = NotificationId(new_id(datetime(2026, 1, 1, tzinfo=UTC), number.to_bytes(9, "big") + b"\0"))
    provenance = Provenance(site, "pump-3", "watch_flow.py", "run-17", "run-16")
    return Submission(made, "ops", subject, "No flow — seit 08:14 Uhr.\n\t€ 𝄞", provenance, enqueued_at)


async def insert(centre: Centre, *submitted: Submission) -> set[str]:
    arrived = [(one, digest(one)) for one in submitted]
    return await centre.store.write_one(arrivals.insert_if_absent, arrived, now=centre.store.now())


@pytest.mark.req(
    "TBL-02",
    "TBL-03",
    "TBL-04",
    "TBL-05",
    "TBL-08",
    "TBL-09",
    "TBL-11",
    "TBL-12",
    "TBL-13",
    "TBL-14",
    "TBL-15",
    "ING-12",
    "LIF-02",
    "TOP-07",
)
async def test_row_has_all_submitted_fields_and_starts_pending_and_due(centre: Centre, clock: ManualClock) -> None:
    one = submission(1)
    assert await insert(centre, one) == {one.notification_id}
    assert await centre.get(one.notification_id) == Notification(
        notification_id=one.notification_id,
        type="unresolved",
        list_name="ops",
        subject="Pump 3 stopped",
        body="No flow — seit 08:14 Uhr.\n\t€ 𝄞",
        provenance=Provenance(SITE, "pump-3", "watch_flow.py", "run-17", "run-16"),
        status=Status.PENDING,
        delivery_key="list:ops",
        created_at=clock.now(),
        due_at=clock.now(),
        cycle_started_at=clock.now(),
        cycle=1,
        version=1,
        retry_count=0,
        last_error=None,
        last_attempt_at=None,
        next_attempt_at=None,
        delivered_at=None,
        terminal_at=None,
        held_by=None,
        held_reason=None,
        site_enqueued_at=ENQUEUED,
        site_enqueued_text=None,
        targets=(),
    )


@pytest.mark.req("ING-02", "ING-06", "TBL-02")
async def test_existing_id_is_not_changed(centre: Centre, clock: ManualClock) -> None:
    first = submission(1)
    await insert(centre, first)
    before = await centre.get(first.notification_id)
    clock.advance(3600)
    assert await insert(centre, submission(1, "something else"), submission(2)) == {submission(2).notification_id}
    assert await centre.get(first.notification_id) == before
    assert await centre.story(first.notification_id) == ["notify_send submitted"]


@pytest.mark.req("ING-02")
async def test_batch_of_existing_ids_inserts_nothing(centre: Centre) -> None:
    batch = [submission(number) for number in range(3)]
    assert await insert(centre, *batch) == {one.notification_id for one in batch}
    assert await insert(centre, *batch) == set()


@pytest.mark.req("TBL-11")
async def test_optional_columns_of_a_batch_are_set_per_row(centre: Centre) -> None:
    bare = Provenance(SITE)
    first, second = (replace(submission(number, enqueued_at=None), provenance=bare) for number in (1, 2))
    await insert(centre, first, second)
    third, with_ = replace(submission(3), provenance=bare), submission(4)
    await insert(centre, third, with_)
    stored = [await centre.get(one.notification_id) for one in (first, second, third, with_)]
    assert [one.provenance for one in stored] == [bare, bare, bare, with_.provenance]
    assert [one.site_enqueued_at for one in stored] == [None, None, ENQUEUED, ENQUEUED]


@pytest.mark.req("DEC-06", "ING-11", "ING-02")
async def test_of_two_nodes_that_insert_the_same_ids_each_id_is_inserted_by_one(
    centre: Centre, clock: ManualClock
) -> None:
    other = open_store(centre.store.url, clock) if centre.is_postgresql else centre.store
    batch = [(one, digest(one)) for one in map(submission, range(100))]
    try:
        inserted = await asyncio.gather(
            *(
                store.write(arrivals.insert_if_absent, batch, now=clock.now())
                for store in (centre.store, other)
                for _ in range(3)
            )
        )
    finally:
        if other is not centre.store:
            await other.close()
    assert sorted(i for ids in inserted for i in ids) == sorted(one.notification_id for one, _ in batch)


@pytest.mark.req("DEC-12")
async def test_stored_content_returns_site_and_digest_of_rows_and_purged_ones(
    centre: Centre, clock: ManualClock
) -> None:
    row, purged, absent = submission(1), submission(2, site="other"), submission(3)
    await insert(centre, row)
    await centre.store.write(bury, purged, clock.now())
    ids = [one.notification_id for one in (row, purged, absent)]
    assert await centre.store.read(arrivals.stored_content, ids) == {
        ids[0]: StoredContent(SITE, digest(row)),
        ids[1]: StoredContent("other", digest(purged)),
    }
    assert await centre.store.read(arrivals.stored_content, []) == {}


async def test_a_purged_id_is_not_inserted_again(centre: Centre, clock: ManualClock) -> None:
    await centre.store.write(bury, submission(1), clock.now())
    assert await insert(centre, submission(1), submission(2)) == {submission(2).notification_id}


@pytest.mark.req("DEC-04")
async def test_time_of_the_site_does_not_affect_the_order(centre: Centre, clock: ManualClock) -> None:
    early = submission(2, enqueued_at=to_text(ENQUEUED - timedelta(days=9000)))
    await insert(centre, submission(1))
    clock.advance(1)
    await insert(centre, early)
    found = await centre.get(early.notification_id)
    assert found.created_at == found.due_at == clock.now()


ILLEGAL = {
    "forwarding is a site's word": "status = 'forwarding'",
    "unknown status": "status = 'processing'",
    "retrying without a next attempt": "status = 'retrying', last_error = 'x'",
    "a next attempt without retrying": "next_attempt_at = created_at",
    "live without a due time": "due_at = null",
    "terminal with a due time": "status = 'parked', last_error = 'x', terminal_at = created_at",
    "terminal without its time": "status = 'parked', last_error = 'x', due_at = null",
    "live with a terminal time": "terminal_at = created_at",
    "delivered without its time": "status = 'delivered', due_at = null, terminal_at = created_at",
    "a delivery time without delivered": "delivered_at = created_at",
    "parked without an error": "status = 'parked', last_error = '', due_at = null, terminal_at = created_at",
    "held although discarded": "status = 'discarded', due_at = null, terminal_at = created_at, held_by = 'channel:x'",
    "an owner without a lease": "claim_owner = 'node-1'",
    "a lease without an owner": "lease_until = created_at",
    "claimed although discarded": "status = 'discarded', due_at = null, terminal_at = created_at,"
    " claim_owner = 'node-1', lease_until = created_at",
    "a negative count": "retry_count = -1",
}


@pytest.mark.req("TBL-07", "LIF-01")
@pytest.mark.parametrize("change", ILLEGAL.values(), ids=ILLEGAL)
async def test_table_rejects_an_invalid_state(centre: Centre, change: str) -> None:
    await insert(centre, submission(1))
    with pytest.raises(IntegrityError):
        await centre.execute(f"update notifications set {change}")
    assert (await centre.get(submission(1).notification_id)).version == 1


@pytest.mark.req("LIF-01", "TBL-07")
@pytest.mark.parametrize("status", ["pending", "retrying", "delivered", "parked", "discarded"])
async def test_table_accepts_the_five_statuses(centre: Centre, status: str) -> None:
    await insert(centre, submission(1))
    is_live = status in ("pending", "retrying")
    await centre.execute(
        f"update notifications set status = '{status}', last_error = 'x',"
        f" next_attempt_at = {'created_at' if status == 'retrying' else 'null'},"
        f" due_at = {'created_at' if is_live else 'null'}, terminal_at = {'null' if is_live else 'created_at'},"
        f" delivered_at = {'created_at' if status == 'delivered' else 'null'}"
    )
    assert (await centre.get(submission(1).notification_id)).status is Status(status)


@pytest.mark.req("TBL-06")
async def test_a_row_has_room_for_data_of_its_type(centre: Centre) -> None:
    await insert(centre, submission(1))
    await centre.execute("""update notifications set type_data = '{"thread": "17"}'""")

    def look(conn: Connection) -> str:
        arrow = "type_data ->> 'thread'"
        return str(conn.execute(text(f"select {arrow} from notifications")).scalar_one())

    assert await centre.store.read(look) == "17"


def bury(conn: Connection, purged: Submission, now: datetime) -> None:
    """Leave a tombstone, as the purge does."""
    from fieldpost.central.store.schema.notification_tables import tombstones

    conn.execute(
        tombstones.insert().values(
            notification_id=purged.notification_id,
            source_site_id=purged.provenance.site,
            digest=digest(purged),
            status="delivered",
            terminal_at=now,
            purged_at=now,
        )
    )
