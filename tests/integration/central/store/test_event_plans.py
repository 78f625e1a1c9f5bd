"""Searches for events, the view of one, and their purge read by an index, however many events there are."""

from datetime import UTC, datetime
from functools import partial

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.engine.purging import BEGINNING, PurgeRange
from fieldpost.central.store.events import events, retention
from fieldpost.core.search.event_filter import EventFilter
from support import plans
from support.centre import Centre
from support.plans import plans_of

ID = "0198c8a0-0000-7000-8000-000000000001"
LATER = datetime(2027, 1, 1, tzinfo=UTC)
SPAN = PurgeRange(LATER, BEGINNING, 500, LATER)

_FILL = """
    insert into events (event_id, topic, source, resource, attributes, correlation_id, payload, digest, match_count,
        created_at)
    select {id}, 'topic-' || (n % 500), 'app:' || (n % 200), 'order/' || n, '{{}}', 'c-' || n, '{{}}', {digest}, 0, {at}
    from {numbers}
"""


def fill(conn: Connection) -> None:
    if conn.dialect.name == "postgresql":
        numbers = "generate_series(1, 20000) n"
        at = "timestamptz '2026-01-01 00:00:00Z' + n * interval '1 second'"
        sql = _FILL.format(id="gen_random_uuid()", digest="'x'", at=at, numbers=numbers)
    else:
        numbers = "(with recursive c(n) as (select 1 union all select n + 1 from c where n < 20000) select n from c)"
        made = "printf('0198c8a0-0000-7000-8000-%012d', n)"
        sql = _FILL.format(id=made, digest="x'00'", at="1767225600000000 + n * 1000000", numbers=numbers)
    conn.exec_driver_sql(sql)


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["new", "analyzed"])
async def test_every_search_for_events_reads_its_own_index(centre: Centre, is_analyzed: bool) -> None:
    await centre.store.write(fill)
    if is_analyzed:
        await centre.execute("analyze")
    for wanted, index in (
        (EventFilter(), "ix_events_created_at"),
        (EventFilter(since=datetime(2026, 1, 1, 1, tzinfo=UTC)), "ix_events_created_at"),
        (EventFilter(topic="topic-1"), "ix_events_topic"),
        (EventFilter(source="app:1", topic="topic-1"), "ix_events_source"),
        (EventFilter(resource="order/7", topic="topic-2"), "ix_events_resource"),
        (EventFilter(correlation_id="c-7", source="app:1"), "ix_events_correlation_id"),
    ):
        work = partial(events.find, wanted=wanted, limit=50)
        for plan in await centre.store.write(plans_of, work, "events"):
            assert index in plan, (wanted, plan)
            assert "sort" not in plan.lower().replace("temp b-tree", "sort"), (wanted, plan)


async def test_the_notifications_of_an_event_and_unused_events_are_found_by_index(centre: Centre) -> None:
    await centre.store.write(fill)
    await centre.store.write(plans.fill, "ops", 20_000)
    await centre.execute("update notifications set event_id = notification_id", "analyze")
    for work in (partial(events.notifications_of, event_id=ID, limit=50), partial(events.counts_of, event_id=ID)):
        for plan in await centre.store.write(plans_of, work):
            assert "ix_notifications_event_id" in plan, plan
    found = await centre.store.write(plans_of, partial(retention.purge_events, span=SPAN), "events")
    assert "ix_events_created_at" in found[0], found[0]
