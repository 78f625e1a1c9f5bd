"""The forwarder against a real buffer and a real link: what is cleared, what is kept, what is boxed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from fieldpost import Site
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.sites.message import Category, Message, MessageStatus, RejectedMessage
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import LATER, REJECTED, Item, Refusal, Result
from fieldpost.link.session import LinkSession
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.testing import ManualClock
from support.link_central import LinkCentral, link_central
from support.loops import running
from support.ports import closed_port, free_port
from support.site_folders import TOKEN, make_site
from support.site_writers import add


@pytest.fixture
async def central() -> AsyncIterator[LinkCentral]:
    async with link_central() as central:
        yield central


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path / "site")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def forwarder_of(
    site: Site, url: str, clock: Clock | None = None, options: ForwardOptions | None = None
) -> AsyncIterator[Forwarder]:
    options = options or ForwardOptions()
    session = LinkSession(options.batch_items, options.batch_bytes)
    client = LinkClient(lambda: Endpoint(url, TOKEN), session, clock or SystemClock())
    carrier = CentralCarrier(client, session)
    forwarder = Forwarder(site._buffer, carrier, options, clock or SystemClock(), Random(1))
    try:
        yield forwarder
    finally:
        await forwarder.close()


@pytest.fixture
async def forwarder(site: Site, central: LinkCentral, clock: ManualClock) -> AsyncIterator[Forwarder]:
    async with forwarder_of(site, central.url, clock) as forwarder:
        yield forwarder


def send(site: Site, count: int = 1) -> list[str]:
    return [site.notify.to("ops").send(f"n{number}", "b" * 100) for number in range(count)]


def waiting(site: Site) -> int:
    return site._buffer.depth().waiting.get(Category.NOTIFICATION, 0)


def buffered(site: Site, notification_id: str) -> Message:
    message = site._buffer.find(notification_id)
    assert isinstance(message, Message)
    return message


@pytest.mark.req("SF-07", "SF-18", "TOP-06")
async def test_acked_notifications_leave_the_buffer_completely(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    ids = send(site, 3)
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed, swept.kept, swept.error) == (3, 0, 0, None)
    assert list(central.stored) == ids
    assert {item.list_name for item in central.stored.values()} == {"ops"}
    assert [site._buffer.find(notification_id) for notification_id in ids] == [None] * 3


async def test_a_backlog_is_drained_oldest_first_in_bounded_batches(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    ids = send(site, 1200)
    swept = await forwarder.sweep()
    assert swept.cleared == 1200
    assert list(central.stored) == ids
    assert max(central.batches) <= 500
    assert waiting(site) == 0


@pytest.mark.req("ING-06", "SF-07")
async def test_lost_ack_causes_a_resend_that_central_stores_once(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    [notification_id] = send(site)
    central.next.append("lose_ack")
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.kept) == (0, 1)
    assert notification_id in central.stored
    message = buffered(site, notification_id)
    assert (message.status, message.retry_count, message.last_attempt_at) == (MessageStatus.RETRYING, 1, clock.now())
    clock.advance(10)
    assert (await forwarder.sweep()).cleared == 1
    assert central.received[notification_id] == 2
    assert waiting(site) == 0


@pytest.mark.req("ING-07")
async def test_a_connection_cut_in_the_middle_of_a_drain_loses_nothing(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    ids = send(site, 300)
    central.next.extend(["accept", "cut", "lose_ack", "cut", "accept"])
    for _ in range(30):
        await forwarder.sweep()
        clock.advance(10)
    assert sorted(central.stored) == sorted(ids)
    assert waiting(site) == 0


@pytest.mark.req("DEC-13")
@pytest.mark.fault(20)
async def test_a_rejected_item_goes_to_the_box_and_the_others_pass(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    ids = send(site, 20)
    poison = ids[7]
    central.judge = lambda item: (
        Result(poison, REJECTED, "notification.conflict", "another has this id")
        if item.notification_id == poison
        else Result(item.notification_id, "accepted")
    )
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed) == (19, 1)
    assert set(central.stored) == set(ids) - {poison}
    boxed = site._buffer.find(poison)
    assert isinstance(boxed, RejectedMessage)
    assert (boxed.code, boxed.error) == ("notification.conflict", "another has this id")
    assert json.loads(boxed.payload)["subject"] == "n7"
    assert [message.message_id for message in site._buffer.rejected()] == [poison]
    before = central.received[poison]
    await forwarder.sweep()
    assert central.received[poison] == before


@pytest.mark.fault(20)
async def test_item_that_invalidates_a_message_is_found_by_bisection(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    ids = send(site, 8)
    central.next.extend([Refusal("link.invalid", "item 7 is no item")] * 4)
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed) == (7, 1)
    assert [message.message_id for message in site._buffer.rejected()] == [ids[0]]
    assert set(central.stored) == set(ids[1:])


async def test_item_that_fails_at_central_is_kept_and_the_others_pass(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    ids = send(site, 8)
    central.next.extend([Refusal("internal", "central made a mistake", wait_s=30)] * 4)
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed, swept.kept) == (7, 0, 1)
    assert buffered(site, ids[0]).last_error == "central made a mistake"
    clock.advance(30)
    assert (await forwarder.sweep()).cleared == 1


async def test_a_central_that_refuses_everything_is_not_flooded(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    send(site, 100)
    central.next.extend([Refusal("internal", "central made a mistake", wait_s=30)] * 1000)
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed) == (0, 0)
    assert 1000 - len(central.next) <= 13
    assert waiting(site) == 100


@pytest.mark.req("RES-16")
async def test_a_corrupt_payload_goes_to_the_box_and_the_others_pass(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    another = '{"notification_id":"x","list_name":"ops","subject":"s","body":"b"}'
    before = send(site)[0]
    corrupt = {add(site._buffer, payload): payload for payload in ('{"subject":', another)}
    after = send(site)[0]
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed) == (2, 2)
    assert list(central.stored) == [before, after]
    boxed = site._buffer.rejected()
    assert {message.message_id: message.payload for message in boxed} == corrupt
    assert {message.code for message in boxed} == {"message.corrupt"}


@pytest.mark.req("SF-08")
async def test_rejection_of_the_batch_keeps_everything_and_is_retried_after_the_interval(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    ids = send(site, 5)
    central.next.append(Refusal("store.unavailable", "the disk of central is full"))
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.boxed, swept.kept) == (0, 0, 5)
    assert swept.error == "the disk of central is full"
    assert site.notify.status(ids[0]).last_error == "the disk of central is full"
    assert not forwarder.health.is_ok
    assert (await forwarder.sweep()).cleared == 0
    clock.advance(10)
    assert (await forwarder.sweep()).cleared == 5
    assert forwarder.health.is_ok


async def test_deferred_item_does_not_delay_the_others(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    ids = send(site, 3)
    central.judge = lambda item: Result(
        item.notification_id, LATER if item.notification_id == ids[0] else "accepted", wait_s=60
    )
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.kept, swept.error) == (2, 1, None)
    assert list(central.stored) == ids[1:]
    clock.advance(59)
    assert (await forwarder.sweep()).kept == 0
    clock.advance(1)
    assert (await forwarder.sweep()).kept == 1


async def test_items_missing_in_an_ack_are_kept(site: Site, central: LinkCentral, forwarder: Forwarder) -> None:
    ids = send(site, 3)
    central.next.append("forget")
    swept = await forwarder.sweep()
    assert (swept.cleared, swept.kept) == (1, 2)
    assert [buffered(site, notification_id).retry_count for notification_id in ids[1:]] == [1, 1]


@pytest.mark.req("SF-08")
async def test_day_without_central_loses_and_parks_nothing_and_is_logged_once(site: Site, clock: ManualClock) -> None:
    """A sweep every minute of an injected day; the disk is not worn by it."""
    port = free_port()
    ids = send(site, 50)
    async with forwarder_of(site, f"http://127.0.0.1:{port}", clock) as forwarder:
        assert (await forwarder.sweep()).error is not None
        mark = site._buffer.change_mark()
        for _ in range(24 * 60):
            swept = await forwarder.sweep()
            assert swept.error is not None
            clock.advance(60)
        assert site._buffer.change_mark() == mark
        assert forwarder.health.error_code == "link.unreachable"
        assert {buffered(site, notification_id).status for notification_id in ids} == {MessageStatus.PENDING}
        async with link_central(port) as central:
            assert (await forwarder.sweep()).cleared == 50
            assert sorted(central.stored) == sorted(ids)


@pytest.mark.req("SF-08")
async def test_notification_is_never_parked_after_any_number_of_attempts(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    [notification_id] = send(site)
    for count in range(1, 121):
        central.next.append(Refusal("store.unavailable", "not now"))
        await forwarder.sweep()
        message = buffered(site, notification_id)
        assert (message.status, message.retry_count) == (MessageStatus.RETRYING, count)
        clock.advance(10)
    assert (await forwarder.sweep()).cleared == 1


async def test_a_denied_token_keeps_everything_and_shows_in_health(
    site: Site, central: LinkCentral, forwarder: Forwarder, clock: ManualClock
) -> None:
    send(site, 3)
    central.upgrade_status = 401
    swept = await forwarder.sweep()
    assert swept.error is not None
    assert forwarder.health.error_code == "link.denied"
    assert forwarder.health.failing_since == clock.now()
    assert waiting(site) == 3
    central.upgrade_status = None
    assert (await forwarder.sweep()).cleared == 3
    assert forwarder.health.last_ok_at == clock.now()


async def test_a_drain_stops_when_central_grants_no_more(
    site: Site, central: LinkCentral, forwarder: Forwarder
) -> None:
    send(site, 200)
    central.credits = 0
    first = await forwarder.sweep()
    assert 0 < first.cleared < 200
    assert first.error is not None
    assert (await forwarder.sweep()).cleared == 1
    central.credits = 60
    assert (await forwarder.sweep()).cleared == 200 - first.cleared - 1
    assert max(central.batches[2:]) <= 60


async def test_any_write_wakes_the_forwarder_at_once(site: Site, central: LinkCentral, tmp_path: Path) -> None:
    """The interval is an hour, so only the hint can have done it."""
    options = ForwardOptions(interval_s=3600, poll_s=0.02)
    async with forwarder_of(site, central.url, options=options) as forwarder, running(forwarder):
        [first] = send(site)
        await central.wait_until(lambda: first in central.stored)
        program = (
            "import sys; from fieldpost import Site; print(Site.open(sys.argv[1]).notify.to('ops').send('s', 'b'))"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "site")]
        script = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await script.communicate()
        second = output.decode().strip()
        await central.wait_until(lambda: second in central.stored)


@pytest.mark.req("SF-11")
async def test_after_a_failure_only_the_fixed_interval_brings_the_next_try(site: Site, clock: ManualClock) -> None:
    port = free_port()
    async with forwarder_of(site, f"http://127.0.0.1:{port}", clock) as forwarder, running(forwarder):
        send(site)
        await clock.wait_sleepers()
        while forwarder.health.is_ok:
            clock.advance(0.2)
            await clock.wait_sleepers()
        assert clock.next_wake_in_s() == pytest.approx(10)
        send(site, 2)
        for name in ("night", "day", "all"):
            site.notify.to(name).send("s", "b")
        async with link_central(port) as central:
            clock.advance(9.9)
            await clock.wait_sleepers()
            assert central.upgrades == 0
            clock.advance(0.1)
            await central.wait_until(lambda: len(central.stored) == 6)


@pytest.mark.req("DEC-26")
async def test_random_jitter_lengthens_the_interval(site: Site, clock: ManualClock) -> None:
    options = ForwardOptions(interval_s=10, jitter=0.5)
    async with forwarder_of(site, f"http://127.0.0.1:{closed_port()}", clock, options) as forwarder, running(forwarder):
        send(site)
        await clock.wait_sleepers()
        while forwarder.health.is_ok:
            clock.advance(0.2)
            await clock.wait_sleepers()
        waits = set()
        for _ in range(3):
            wait_s = clock.next_wake_in_s()
            assert wait_s is not None
            assert 10 < wait_s <= 15
            waits.add(wait_s)
            clock.advance(wait_s)
            await clock.wait_sleepers()
        assert len(waits) == 3


async def test_stop_ends_a_waiting_forwarder_at_once(site: Site, central: LinkCentral) -> None:
    options = ForwardOptions(interval_s=3600, poll_s=3600)
    async with forwarder_of(site, central.url, options=options) as forwarder:
        async with running(forwarder):
            [sent] = send(site)
            await central.wait_until(lambda: sent in central.stored)
        assert waiting(site) == 0


async def test_a_stop_in_the_middle_of_a_drain_ends_it_after_the_batch_under_way(
    site: Site, central: LinkCentral
) -> None:
    options = ForwardOptions(batch_items=10)
    send(site, 200)
    stopping = asyncio.Event()

    def judge(item: Item) -> Result:
        stopping.set()
        return Result(item.notification_id, "accepted")

    central.judge = judge
    async with forwarder_of(site, central.url, options=options) as forwarder, asyncio.timeout(20):
        await forwarder.run(stopping)
    assert len(central.stored) == 10
    assert waiting(site) == 190


async def test_a_bug_in_a_carrier_keeps_everything_and_the_forwarder_alive(site: Site, clock: ManualClock) -> None:
    class Broken(CentralCarrier):
        async def _submit(self, items: object, search: object) -> dict[str, object]:  # type: ignore[override]
            raise ZeroDivisionError("a bug")

    session = LinkSession()
    client = LinkClient(lambda: Endpoint("http://127.0.0.1:9", TOKEN), session, clock)
    forwarder = Forwarder(site._buffer, Broken(client, session), ForwardOptions(), clock, Random(1))
    send(site, 2)
    swept = await forwarder.sweep()
    assert swept.error == "ZeroDivisionError: a bug"
    assert forwarder.health.error_code == "sweep.crashed"
    assert waiting(site) == 2
    await forwarder.close()


def test_items_of_the_link_equal_the_buffered_ones(site: Site) -> None:
    """The payload is sent as it lies there, so the two shapes are one."""
    [notification_id] = send(site)
    item = msgspec.json.decode(buffered(site, notification_id).payload, type=Item)
    assert item.notification_id == notification_id


def test_a_buffer_can_be_opened_beside_a_running_agent(site: Site, tmp_path: Path) -> None:
    other = Buffer(tmp_path / "site" / "buffer.db")
    [notification_id] = send(site)
    assert other.find(notification_id) is not None
    other.close()
