"""Counting what is parked and what waits for a list: as many as a plain formula tells, and soon."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.search import parked
from fieldpost.central.store.search.parked import Counted
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.plans import fill, plans_of, reads_of

OTHER = "plant-8"


async def park(centre: Centre, ids: list[str], error: str = "550 no") -> None:
    some = ", ".join(f"'{one}'" for one in ids)
    await centre.execute(
        "update notifications set status = 'parked', due_at = null, terminal_at = created_at,"
        f" last_error = '{error}' where notification_id in ({some})"
    )


async def send(centre: Centre, count: int, list_name: str = "ops", **more: Any) -> list[str]:
    """One after the other, so that it is known which is newest."""
    ids = []
    for _ in range(count):
        centre.clock.advance(1)
        ids.append(await centre.send(list_name, **more))
    return ids


async def fitting(centre: Centre, clock: ManualClock, **wanted: Any) -> tuple[Counted, list[str]]:
    return await centre.store.read(parked.fitting, Filter(**wanted), clock.now(), 2)


@pytest.fixture
async def stopped(centre: Centre) -> dict[str, list[str]]:
    """Five that are parked, newest last, and two that are not."""
    first = await send(centre, 2, subject="Pump 7 stopped")
    second = await send(centre, 1, "it", subject="Valve open", site=OTHER)
    third = await send(centre, 2, subject="Pump 8 low")
    await park(centre, [*first, *second], "550 no such user 4711")
    await park(centre, third, "451 later")
    await send(centre, 2, subject="Pump 9 stopped")
    return {"first": first, "second": second, "third": third}


async def test_matching_rows_are_counted_newest_first(
    centre: Centre, clock: ManualClock, stopped: dict[str, list[str]]
) -> None:
    first, second, third = stopped.values()
    assert await fitting(centre, clock) == (Counted(5, True), third[::-1])
    assert await fitting(centre, clock, site=OTHER) == (Counted(1, True), second)
    assert await fitting(centre, clock, list_name="ops") == (Counted(4, True), third[::-1])
    assert await fitting(centre, clock, type="webhook") == (Counted(0, True), [])
    assert await fitting(centre, clock, subject="pump STOPPED") == (Counted(2, True), first[::-1])
    assert await fitting(centre, clock, subject="stopped flood") == (Counted(0, True), [])
    error_key = fingerprint_key("550 no such user 1")
    assert await fitting(centre, clock, error_key=error_key) == (Counted(3, True), [second[0], first[1]])
    assert await fitting(centre, clock, error_key=error_key, subject="7") == (Counted(2, True), first[::-1])
    assert await fitting(centre, clock, error_key=fingerprint_key("451 later"), subject="7") == (Counted(0, True), [])


async def test_matching_rows_arrived_in_the_range_and_parked_before_the_query(
    centre: Centre, clock: ManualClock, stopped: dict[str, list[str]]
) -> None:
    third_at = clock.now() - timedelta(seconds=3)
    assert await fitting(centre, clock, since=third_at) == (Counted(2, True), stopped["third"][::-1])
    assert await fitting(centre, clock, until=third_at) == (Counted(3, True), [*stopped["second"], stopped["first"][1]])
    counted, _ = await centre.store.read(parked.fitting, Filter(), third_at, 2)
    assert counted == Counted(4, True), "the last one parked later"


async def test_count_above_the_scan_limit_is_a_lower_bound(
    centre: Centre, clock: ManualClock, stopped: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked, "FITTING_MAX", 3)
    assert await fitting(centre, clock) == (Counted(3, False), stopped["third"][::-1])
    assert await fitting(centre, clock, subject="stopped") == (Counted(0, False), [])
    monkeypatch.setattr(parked, "OF_LIST_MAX", 4)
    assert await centre.store.read(parked.of_list, "it") == (Counted(0, True), Counted(1, False))


async def test_held_and_retrying_rows_of_a_list_are_counted_as_waiting(
    centre: Centre, stopped: dict[str, list[str]]
) -> None:
    held, retrying = await send(centre, 2)
    await send(centre, 3, "it")
    await centre.execute(
        f"update notifications set held_by = 'channel:mail', held_reason = 'down' where notification_id = '{held}'"
    )
    await centre.execute(
        "update notifications set status = 'retrying', last_error = 'x', next_attempt_at = created_at"
        f" where notification_id = '{retrying}'"
    )
    assert await centre.store.read(parked.of_list, "ops") == (Counted(4, True), Counted(4, True))
    assert await centre.store.read(parked.of_list, "it") == (Counted(3, True), Counted(1, True))
    assert await centre.store.read(parked.of_list, "nobody") == (Counted(0, True), Counted(0, True))


async def test_errors_of_parked_notifications_are_counted(centre: Centre, clock: ManualClock) -> None:
    sent = await centre.send_many(5)
    await park(centre, sent[:2], "550 a")
    await park(centre, sent[2:3], "550 b")
    found, is_whole = await centre.store.read(parked.errors)
    assert {(one.error, one.count) for one in found} == {("550 a", 2), ("550 b", 1)}
    assert {one.first_at for one in found} == {clock.now()}
    assert is_whole


async def test_only_the_newest_parked_are_grouped_when_there_are_too_many(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked, "ERRORS_MAX", 3)
    await park(centre, await centre.send_many(3), "550 a")
    found, is_whole = await centre.store.read(parked.errors)
    assert ([one.count for one in found], is_whole) == ([3], False)


async def test_counts_use_the_indexes_of_live_rows_and_read_no_history(centre: Centre, clock: ManualClock) -> None:
    """A history of 20,000 would be as many rows on PostgreSQL, or 100 more thousands of steps on SQLite."""
    await centre.store.write(fill, "old", 20_000)
    await centre.execute(
        "update notifications set status = 'delivered', delivered_at = created_at, terminal_at = created_at,"
        " due_at = null where list_name = 'old'"
    )
    await centre.store.write(fill, "ops", 300)
    await centre.execute("analyze")

    def look(conn: Connection) -> None:
        parked.errors(conn)
        parked.fitting(conn, Filter(site=OTHER), clock.now(), 5)
        parked.of_list(conn, "old")

    def work(conn: Connection) -> tuple[list[str], int]:
        return plans_of(conn, look), reads_of(conn, look)

    (errors, looked_at, by_text, waiting, held, of_list), reads = await centre.store.write(work)
    for plan in (errors, looked_at, by_text, of_list):
        assert "ix_notifications_undelivered" in plan
    assert waiting.count("ix_notifications_claim") == 2
    assert "ix_notifications_held" in held
    assert reads <= 10
