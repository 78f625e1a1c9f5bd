"""Finding notifications: every filter against a plain formula, on both databases, indexed or not, in any pages."""

import os
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.purging import BEGINNING, PurgedBatch, PurgeRange
from fieldpost.central.store.notifications import attempts
from fieldpost.central.store.search import notifications, parked, postings, terms
from fieldpost.central.store.search.notifications import Found
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.ids import new_id
from fieldpost.core.notification import NotificationKind, Status, Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.search.tokens import tokenize
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre
from support.hooks import Hooks
from support.plans import plans_of

WORDS = ("pump", "valve", "low", "High", "tank-7", "STRASSE", "straße", "über", "4711")


async def find(centre: Centre, *, limit: int = 100, before: PageKey | None = None, **wanted: object) -> Found:
    return await centre.store.read(notifications.find, Filter(**wanted), limit=limit, before=before)  # type: ignore[arg-type]


async def ids(centre: Centre, **wanted: object) -> list[str]:
    return [n.notification_id for n in (await find(centre, **wanted)).notifications]


async def index(centre: Centre, rows_max: int = 1000) -> int:
    return await centre.store.write(terms.index, rows_max, random.getrandbits(60))


async def index_all(centre: Centre) -> None:
    while await index(centre):
        pass


async def set_status(centre: Centre, notification_ids: Sequence[str], status: Status, error: str = "550 no") -> None:
    """As whoever delivers would leave them."""

    def write(conn: Connection) -> None:
        for notification_id in notification_ids:
            conn.execute(text(_SET[status]), {"i": notification_id, "s": status.value, "e": error})

    await centre.store.write(write)


_SET = {
    Status.PENDING: "update notifications set status = :s where notification_id = :i and :e = :e",
    Status.RETRYING: "update notifications set status = :s, last_error = :e, next_attempt_at = created_at"
    " where notification_id = :i",
    Status.DELIVERED: "update notifications set status = :s, due_at = null, delivered_at = created_at,"
    " terminal_at = created_at, last_error = :e where notification_id = :i",
    Status.PARKED: "update notifications set status = :s, due_at = null, terminal_at = created_at, last_error = :e"
    " where notification_id = :i",
    Status.DISCARDED: "update notifications set status = :s, due_at = null, terminal_at = created_at, last_error = :e"
    " where notification_id = :i",
}


async def fill(centre: Centre, clock: ManualClock, rng: random.Random, count: int) -> None:
    """Notifications of some days, several at a moment, some indexed as they come."""
    while count > 0:
        some = min(count, rng.randint(1, 5))
        items = [
            centre.item(
                rng.choice(("ops", "it")),
                " ".join(rng.choices(WORDS, k=rng.randint(1, 3))),
                notification_id=new_id(clock.now(), os.urandom(10)),
            )
            for _ in range(some)
        ]
        await centre.submit(*items, site=rng.choice(("plant-7", "plant-8")))
        for status in Status:
            chosen = [i.notification_id for i in items if rng.random() < 0.3]
            if status is not Status.PENDING and chosen:
                await set_status(centre, chosen[:1], status, rng.choice(("550 5.1.1 no user 4", "554 refused")))
                break
        clock.advance(rng.choice((0, 1, 3600, 40_000)))
        if rng.random() < 0.3:
            await index(centre, rng.randint(1, 20))
        count -= some


async def everything(centre: Centre) -> list[Summary]:
    found = (await find(centre, limit=1000)).notifications
    assert list(found) == sorted(found, key=lambda n: (n.created_at, n.notification_id), reverse=True)
    return list(found)


def fits(n: Summary, wanted: Filter) -> bool:
    return (
        (not wanted.statuses or n.status in wanted.statuses)
        and wanted.type in (None, n.type)
        and wanted.site in (None, n.provenance.site)
        and wanted.list_name in (None, n.list_name)
        and (wanted.since is None or n.created_at >= wanted.since)
        and (wanted.until is None or n.created_at < wanted.until)
        and set(wanted.words) <= set(tokenize(n.subject))
    )


def a_filter(rng: random.Random, first: datetime, last: datetime) -> Filter:
    def sometimes(value: object, chance: float = 0.4) -> object:
        return value if rng.random() < chance else None

    def moment() -> datetime:
        return first + rng.random() * (last - first)

    return Filter(
        statuses=tuple(rng.sample(list(Status), rng.choice((0, 0, 1, 1, 2, 4)))),
        type=sometimes(rng.choice(("email", "teams")), 0.2),  # type: ignore[arg-type]
        site=sometimes(rng.choice(("plant-7", "plant-8", "plant-9"))),  # type: ignore[arg-type]
        list_name=sometimes(rng.choice(("ops", "it"))),  # type: ignore[arg-type]
        since=sometimes(moment(), 0.3),  # type: ignore[arg-type]
        until=sometimes(moment(), 0.3),  # type: ignore[arg-type]
        subject=sometimes(" ".join(rng.choices(WORDS, k=rng.randint(1, 2))), 0.6),  # type: ignore[arg-type]
    )


@pytest.mark.req("CMD-01", "KPI-11", "KPI-12")
@pytest.mark.parametrize("seed", range(4))
async def test_every_filter_agrees_with_its_formula_in_pages_of_any_size(
    centre: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    if seed % 2:
        # Everything in small pieces, so that a hundred rows meet every boundary that a million would.
        for module, name, value in (
            (notifications, "SCAN_MAX", 11),
            (notifications, "FEW", 6),
            (notifications, "_STEP", 3),
            (notifications, "_STEP_MAX", 5),
            (terms, "CHUNK_PLACES", 3),
            (postings, "_CHUNKS_FIRST", 1),
            (postings, "_CHUNKS_MAX", 2),
            (postings, "_FEW", 4),
        ):
            monkeypatch.setattr(module, name, value)
    await fill(centre, clock, rng, 120)
    first = clock.now()
    monkeypatch.setattr(notifications, "SCAN_MAX", 5000)
    rows = await everything(centre)
    if seed % 2:
        monkeypatch.setattr(notifications, "SCAN_MAX", 11)
    assert len(rows) == 120
    for turn in range(60):
        if turn == 40:
            await index_all(centre)
            assert (await centre.store.read(terms.backlog)).count == 0
        wanted = a_filter(rng, rows[-1].created_at, first)
        expected = [n for n in rows if fits(n, wanted)]
        limit = rng.choice((1, 4, 200))
        seen: list[Summary] = []
        before: PageKey | None = None
        while True:
            page = await centre.store.read(notifications.find, wanted, limit=limit, before=before)
            assert len(page.notifications) <= limit
            seen += page.notifications
            if page.end is None:
                break
            assert before is None or page.end < before, "every page comes further"
            before = page.end
        assert seen == expected, wanted


async def test_new_notifications_are_found_before_they_are_indexed(centre: Centre, clock: ManualClock) -> None:
    old = await centre.send(subject="Pump stopped")
    await index_all(centre)
    clock.advance(1)
    new = await centre.send(subject="pump started")
    assert await ids(centre, subject="PUMP") == [new, old]
    assert (await centre.store.read(terms.backlog)).count == 1
    await index_all(centre)
    assert await ids(centre, subject="PUMP") == [new, old]
    assert await ids(centre, subject="pump stopped") == [old]
    assert await ids(centre, subject="pum") == [], "whole words only"


async def test_rejected_or_repeated_arrival_is_not_indexed_twice(centre: Centre) -> None:
    item = centre.item(subject="Pump stopped")
    await centre.submit(item)
    await index_all(centre)
    await centre.submit(item)
    assert (await centre.store.read(terms.backlog)).count == 0
    assert await ids(centre, subject="pump") == [item.notification_id]


async def test_arrivals_of_the_same_time_in_several_batches_are_found_once_each(centre: Centre) -> None:
    first, second = await centre.send(subject="pump a"), await centre.send(subject="pump b")
    await index(centre, 1)
    third = await centre.send(subject="pump c")
    await index_all(centre)
    found = await ids(centre, subject="pump")
    assert sorted(found) == sorted([first, second, third])


async def test_search_without_hits_stops_and_can_be_continued(
    centre: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "SCAN_MAX", 4)
    monkeypatch.setattr(notifications, "_LEFT_OUT_PER_ROW", 5)
    wanted = await centre.send(site="plant-8", subject="valve closed")
    clock.advance(1)
    await centre.send_many(50, site=SITE, subject="pump stopped")
    await index_all(centre)
    page = await find(centre, statuses=(Status.PENDING, Status.DELIVERED), subject="pump closed")
    assert (page.notifications, page.end) == ((), None), "no row has both, and the rarer word says so at once"
    everywhere = await find(centre, statuses=(Status.DELIVERED,))
    assert everywhere.notifications == ()
    assert everywhere.end is not None
    pages = 0
    while everywhere.end is not None:
        everywhere = await find(centre, statuses=(Status.DELIVERED,), before=everywhere.end)
        pages += 1
    assert pages == 2, "twenty rows a look, which the database leaves out by itself"
    assert await ids(centre, site="plant-8") == [wanted]


@pytest.mark.parametrize("statuses", [(Status.PARKED,), (Status.PARKED, Status.DISCARDED)], ids=["one", "several"])
async def test_rare_status_is_searched_without_reading_history(
    centre: Centre, clock: ManualClock, statuses: tuple[Status, ...]
) -> None:
    wanted = await centre.send(site="plant-8")
    clock.advance(1)
    await set_status(centre, [wanted, *await centre.send_many(300)], Status.PARKED)
    await centre.send_many(100, site="plant-8")
    await index_all(centre)
    await centre.execute("analyze")

    def work(conn: Connection) -> tuple[list[str], list[Found]]:
        found: list[Found] = []
        return plans_of(
            conn, lambda c: found.append(notifications.find(c, Filter(statuses=statuses, site="plant-8"), limit=10))
        ), found

    (*walks, _), (found,) = await centre.store.write(work)
    assert ([n.notification_id for n in found.notifications], found.end) == ([wanted], None)
    assert all("ix_notifications_undelivered" in plan for plan in walks)
    assert len(walks) == 4, "two steps, and where each ended"


async def test_no_body_is_read_for_a_list(centre: Centre) -> None:
    await centre.send(body="secret " * 1000, subject="pump")
    await index_all(centre)
    walks = [statement for walk in notifications._statements.values() for statement in walk]
    statements = [*walks, notifications._these, notifications._whole, terms._arrived]
    for statement in statements:
        assert all("body" not in str(clause) for clause in statement._texts.values())
    (found,) = (await find(centre, subject="pump")).notifications
    assert not hasattr(found, "body")


async def test_terms_of_days_without_notifications_are_deleted(centre: Centre, clock: ManualClock) -> None:
    old = await centre.send(subject="pump old")
    clock.advance(3 * 86_400)
    kept = await centre.send(subject="pump kept")
    clock.advance(3 * 86_400)
    gone = await centre.send(subject="pump gone")
    await index_all(centre)
    for one in (old, gone):
        await centre.execute(f"delete from notifications where notification_id = '{one}'")
    assert await ids(centre, subject="pump") == [kept], "a place without a notification finds nothing"
    span = PurgeRange(clock.now(), BEGINNING, 4, clock.now())
    removed = [await centre.store.write(terms.purge, span) for _ in range(4)]
    assert removed == [PurgedBatch(4, BEGINNING), PurgedBatch(4, BEGINNING), PurgedBatch(2, None), PurgedBatch(0, None)]
    days = await centre.store.read(lambda conn: conn.execute(text("select distinct day from search_terms")).all())
    assert len(days) == 1
    assert await ids(centre, subject="pump") == [kept]


async def test_time_range_includes_its_start_and_excludes_its_end(centre: Centre, clock: ManualClock) -> None:
    first = await centre.send()
    clock.advance(1)
    second = await centre.send()
    at = clock.now()
    assert await ids(centre, since=at) == [second]
    assert await ids(centre, until=at) == [first]
    assert await ids(centre, since=at, until=at) == []
    assert await ids(centre, since=at - timedelta(seconds=1), until=at + timedelta(microseconds=1)) == [second, first]


@pytest.mark.parametrize("is_stepwise", [False, True], ids=["at once", "in steps"])
async def test_notifications_are_found_by_subscription_event_and_kind(
    mailing: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_stepwise: bool
) -> None:
    rng = random.Random(7)
    hooks = Hooks(mailing, clock)
    subscriptions = [await hooks.subscribe(name) for name in ("billing", "stock", "crm")]
    events: list[str] = []
    for _ in range(8):
        events += await hooks.publish(rng.randint(1, 3))
        await mailing.send()
        clock.advance(rng.choice((0, 60)))
    rows = await everything(mailing)
    for n in rows:
        await set_status(mailing, [n.notification_id], rng.choice(list(Status)))
    await index(mailing, 20)
    rows = await everything(mailing)
    if is_stepwise:
        for name, value in (("SCAN_MAX", 11), ("FEW", 6), ("_STEP", 3), ("_STEP_MAX", 5)):
            monkeypatch.setattr(notifications, name, value)
    for _ in range(60):
        subscription = rng.choice([None, *subscriptions])
        wanted = Filter(
            statuses=tuple(rng.sample(list(Status), rng.choice((0, 0, 1, 2)))),
            subscription_id=subscription.subscription_id if subscription else None,
            event_id=rng.choice([None, None, *events]),
            kind=rng.choice([None, *NotificationKind]),
            since=rng.choice([None, rows[len(rows) // 2].created_at]),
            until=rng.choice([None, rows[len(rows) // 3].created_at]),
        )
        key = subscription_key(subscription.subscription_id) if subscription else None
        expected = [
            n
            for n in rows
            if fits(n, wanted)
            and key in (None, n.delivery_key)
            and wanted.event_id in (None, n.event_id)
            and wanted.kind in (None, NotificationKind.of_type(n.type))
        ]
        seen: list[Summary] = []
        before: PageKey | None = None
        while True:
            page = await mailing.store.read(notifications.find, wanted, limit=4, before=before)
            seen += page.notifications
            before = page.end
            if before is None:
                break
        assert seen == expected, wanted
        counted, newest = await mailing.store.read(parked.fitting, wanted, clock.now(), 100)
        of_parked = [n.notification_id for n in rows if n.status is Status.PARKED and n in expected]
        if not wanted.statuses:
            assert (counted.count, newest) == (len(of_parked), of_parked), "the preview of a bulk action"


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["new", "analyzed"])
async def test_the_rows_of_a_subscription_and_of_an_event_are_read_by_their_indexes(
    centre: Centre, clock: ManualClock, is_analyzed: bool
) -> None:
    """Also of one that has nearly all rows, for which the order of arrival would seem cheaper."""
    hooks = Hooks(centre, clock)
    one = await hooks.subscribe()
    await hooks.publish(300)
    event_id = (await everything(centre))[0].event_id
    if is_analyzed:
        await centre.execute("analyze")
    for wanted, name in (
        (Filter(subscription_id=one.subscription_id), "ix_notifications_subscription"),
        (Filter(subscription_id=one.subscription_id, statuses=(Status.PARKED,)), "ix_notifications_subscription"),
        (Filter(event_id=event_id), "ix_notifications_event_id"),
        (Filter(event_id=event_id, subscription_id=one.subscription_id), "ix_notifications_event_id"),
    ):
        scans = await centre.store.write(plans_of, partial(notifications.find, wanted=wanted, limit=50))
        assert name in scans[0], (wanted, scans[0])
        (of_attempts,) = await centre.store.write(
            plans_of, partial(attempts.newest, ids=[event_id], most=10), "attempts"
        )
        assert "Seq Scan" not in of_attempts
        assert "SCAN attempts" not in of_attempts
        if "subscription" in name:
            assert "TEMP B-TREE" not in scans[0], "in the order of the index"
            assert "Sort" not in scans[0]
