"""The site's event log: what it tells of, what it keeps, and that it tells of nothing that did not happen."""

import asyncio
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from fieldpost import Site
from fieldpost.core.errors import OperationFailed, Unavailable
from fieldpost.core.sites.forwarding import Box, CarrierAnswer, Clear, TryAgain
from fieldpost.core.sites.message import Category
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.link.session import Room
from fieldpost.site.buffer import event_log, event_queries
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.buffer.event_queries import SiteEventFilter
from fieldpost.site.config.options import EventOptions, ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.site.upkeep import BufferUpkeep
from fieldpost.testing import ManualClock
from support.plant import RETRIES_MAX, Plant
from support.site_folders import make_site


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def site(tmp_path: Path, clock: ManualClock) -> Site:
    make_site(tmp_path / "site").close()
    return Site.open(tmp_path / "site", clock=clock)


def told(site: Site, wanted: SiteEventFilter | None = None) -> list[SiteEvent]:
    return site._buffer.read(lambda cursor: event_queries.query(cursor, wanted))[::-1]


@pytest.mark.req("SF-20", "RES-05")
def test_every_event_of_cached_calls_is_logged(plant: Plant) -> None:
    delivered = plant.site.external("erp").call("POST", "/orders", instance="pump-3", script="order.py")
    assert plant.kinds(delivered) == ["queued", "delivered"]
    queued, arrived = plant.events(delivered)
    assert (queued.severity, queued.category, queued.target) == ("info", Category.EXTERNAL_CALL, "erp")
    assert (queued.instance, queued.script, queued.text) == ("pump-3", "order.py", "erp POST /orders")
    assert (arrived.instance, arrived.occurred_at) == ("pump-3", plant.clock.now())
    parked = plant.site.external("dead").call("GET", "/")
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    plant.site._buffer.retry(parked, plant.clock.now(), by="ann")
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    plant.site._buffer.discard(parked, plant.clock.now(), by="bob")
    cycle = ["retried"] * (RETRIES_MAX - 1) + ["parked"]
    assert plant.kinds(parked) == ["queued", "retried", *cycle, "requeued", *cycle, "discarded"]
    texts = {event.kind: event.text for event in plant.events(parked)}
    assert (texts["requeued"], texts["discarded"]) == ("by ann", "by bob")
    assert "127.0.0.1" in texts["parked"]
    plant.server.on().answer(404, "no such part")
    with pytest.raises(OperationFailed) as caught:
        plant.site.external("erp").call("GET", "/")
    assert plant.kinds(caught.value.call_id) == ["queued", "failed"]


@pytest.mark.req("SF-20", "RES-05", "DEC-13")
def test_only_failures_of_notifications_are_logged(site: Site, clock: ManualClock) -> None:
    passed, refused, later = [site.notify.to("ops").send("s", "b") for _ in range(3)]
    now = clock.now()
    decisions = [(passed, Clear()), (refused, Box("list.bad", "no")), (later, TryAgain(now, "busy"))]
    site._buffer.settle(decisions, now)
    [entry] = told(site)
    assert (entry.kind, entry.severity, entry.category) == ("rejected", "error", Category.NOTIFICATION)
    assert (entry.message_id, entry.text) == (refused, "list.bad: no")


@pytest.mark.req("RES-05")
def test_all_events_of_notifications_are_logged_if_configured(tmp_path: Path, clock: ManualClock) -> None:
    make_site(tmp_path / "site").close()
    with (tmp_path / "site" / "site.toml").open("a") as settings:
        settings.write('\n[events]\nnotifications = "all"\n')
    site = Site.open(tmp_path / "site", clock=clock)
    passed, later = [site.notify.to("ops").send("s", "b") for _ in range(2)]
    now = clock.now()
    site._buffer.settle([(passed, Clear()), (later, TryAgain(now, "busy"))], now)
    kinds = [(entry.message_id, entry.kind) for entry in told(site)]
    assert kinds == [(passed, "queued"), (later, "queued"), (passed, "delivered"), (later, "retried")]


class Line:
    """A carrier over a line that the test cuts and mends."""

    category = Category.NOTIFICATION
    may_go_on = True

    def __init__(self) -> None:
        self.error: str | None = None

    def room(self) -> Room:
        return Room(100, 10_000)

    async def carry(self, messages: object) -> list[CarrierAnswer]:
        from fieldpost.core.sites.forwarding import Taken

        if self.error is not None:
            raise Unavailable(self.error, "cannot be reached")
        return [Taken() for _ in messages]  # type: ignore[attr-defined]

    async def close(self) -> None:
        pass


@pytest.mark.req("RES-05")
async def test_problems_with_central_are_logged_once_per_kind_and_when_resolved(site: Site, clock: ManualClock) -> None:
    line = Line()
    forwarder = Forwarder(site._buffer, line, ForwardOptions(), clock, Random(1))
    for error in ("link.unreachable", "link.unreachable", "link.denied", None, None):
        site.notify.to("ops").send("s", "b")
        line.error = error
        await forwarder.sweep()
        clock.advance(10)
    await forwarder.close()
    assert [(entry.kind, entry.text.split(":")[0]) for entry in told(site)[:2]] == [
        ("forwarding_failed", "link.unreachable"),
        ("forwarding_failed", "link.denied"),
    ]
    assert [entry.kind for entry in told(site)[2:]] == ["forwarding_resumed"]


def test_overdue_notifications_are_logged_once_until_none_is_left(site: Site, clock: ManualClock) -> None:
    upkeep = BufferUpkeep(site._buffer, clock, events=EventOptions(waiting_s=600))
    waiting = site.notify.to("ops").send("s", "b")
    for seconds, count in ((600, 0), (1, 1), (600, 1)):
        clock.advance(seconds)
        asyncio.run(upkeep.sweep())
        assert len(told(site, SiteEventFilter(kind="waiting_long"))) == count
    site._buffer.settle([(waiting, Clear())], clock.now())
    asyncio.run(upkeep.sweep())
    site.notify.to("ops").send("s", "b")
    clock.advance(601)
    asyncio.run(upkeep.sweep())
    assert len(told(site, SiteEventFilter(kind="waiting_long"))) == 2


def test_entry_and_its_change_are_committed_together(plant: Plant) -> None:
    plant.site._buffer.write(
        lambda cursor: cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'no room'); END"
        )
    )
    with pytest.raises(Exception, match="no room"):
        plant.site.external("erp").call("GET", "/")
    assert plant.site.tracking.changed_since(0, 10) == []
    assert plant.site._buffer.depth().waiting == {}
    assert not plant.server.requests


def fill(buffer: Buffer, clock: ManualClock, count: int, text: str = "x" * 100) -> None:
    entries = [event_log.event(SiteEventKind.RETRIED, clock.now(), text) for _ in range(count)]
    buffer.write(lambda cursor: event_log.append(cursor, entries))


def test_entries_are_deleted_after_thirty_days(site: Site, clock: ManualClock) -> None:
    fill(site._buffer, clock, 3)
    clock.advance(30 * 86_400)
    fill(site._buffer, clock, 2)
    upkeep = BufferUpkeep(site._buffer, clock)
    asyncio.run(upkeep.sweep())
    assert len(told(site)) == 5
    clock.advance(1)
    asyncio.run(upkeep.sweep())
    left = told(site)
    assert [entry.sequence for entry in left] == [4, 5]
    fill(site._buffer, clock, 1)
    assert told(site)[-1].sequence == 6


def test_beyond_its_size_the_log_loses_its_oldest_entries_first(site: Site, clock: ManualClock) -> None:
    options = EventOptions(bytes_max=65_536)
    fill(site._buffer, clock, 2_500)
    asyncio.run(BufferUpkeep(site._buffer, clock, events=options).sweep())
    left = told(site, SiteEventFilter())
    count, size = site._buffer.read(event_log.size)
    assert 65_536 - 300 < size <= 65_536
    assert [entry.sequence for entry in site._buffer.read(lambda c: event_queries.query(c, limit=9_999))][::-1] == list(
        range(2_501 - count, 2_501)
    )
    assert left


def test_sequence_is_not_reused_when_the_log_is_empty(site: Site, clock: ManualClock) -> None:
    fill(site._buffer, clock, 3)
    clock.advance(90 * 86_400)
    asyncio.run(BufferUpkeep(site._buffer, clock).sweep())
    assert told(site) == []
    fill(site._buffer, clock, 1)
    assert told(site)[0].sequence == 4


def test_overlong_text_is_truncated(site: Site, clock: ManualClock) -> None:
    fill(site._buffer, clock, 1, "é" * 100_000)
    assert len(told(site)[0].text.encode()) <= event_log.TEXT_BYTES_MAX


def test_the_log_is_read_by_filter_and_page_by_page(site: Site, clock: ManualClock) -> None:
    start = clock.now()
    for number in range(30):
        entry = event_log.event(
            SiteEventKind.PARKED if number % 3 else SiteEventKind.QUEUED,
            clock.now(),
            str(number),
            category=Category.EXTERNAL_CALL,
            message_id=f"m-{number}",
            target=f"t-{number % 2}",
            instance="pump",
            script="s.py",
        )
        site._buffer.write(lambda cursor, entry=entry: event_log.append(cursor, [entry]))  # type: ignore[misc]
        clock.advance(1)

    def texts(wanted: SiteEventFilter, **page: int) -> list[str]:
        return [entry.text for entry in site._buffer.read(lambda cursor: event_queries.query(cursor, wanted, **page))]

    assert texts(SiteEventFilter(kind="queued", target="t-1")) == ["27", "21", "15", "9", "3"]
    assert texts(SiteEventFilter(severity="error", target="t-0"), limit=2) == ["28", "26"]
    assert texts(SiteEventFilter(message_id="m-7")) == ["7"]
    assert texts(SiteEventFilter(instance="other")) == []
    assert texts(SiteEventFilter(since=start + timedelta(seconds=5), until=start + timedelta(seconds=8))) == [
        "7",
        "6",
        "5",
    ]
    first = site._buffer.read(lambda cursor: event_queries.query(cursor, limit=10))
    second = site._buffer.read(lambda cursor: event_queries.query(cursor, before=first[-1].sequence, limit=10))
    assert [entry.text for entry in first + second] == [str(number) for number in range(29, 9, -1)]
