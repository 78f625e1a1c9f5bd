"""Lists of lists: parts are made with the submission, and everything about the whole is folded from them."""

import asyncio
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldpost.central.ingest.submit import Ingest, IngestOptions
from fieldpost.central.operate.notifications import NotAsSeen, NotificationActions
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.notifications import lists
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.outcome import Evidence, Held, PermanentFailure
from fieldpost.core.errors import NotFound
from fieldpost.core.ids import new_id
from fieldpost.core.lists import NotificationList
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.core.wholes import part_id
from fieldpost.testing import ManualClock
from support import submitting_process
from support.centre import SITE, Centre, open_centre
from support.submitting_process import submit_of

PROCESSES = 4
COPIES = 10
OPERATOR = Actor("ann", Role.OPERATOR)
YEAR_S = 366 * 86_400.0


@pytest.fixture
async def alarm(centre: Centre) -> Centre:
    """Three lists, and `alarm`, which names them."""
    await centre.add_channel()
    for name in ("mail", "sms", "teams"):
        await centre.add_list(name)
    await centre.add_list("alarm", "mail", "sms", "teams", type="lists")
    return centre


def watch(centre: Centre) -> Watch:
    return Watch.over(centre.store, centre.clock)


async def statuses(centre: Centre) -> dict[str, str]:
    return {str(name): str(status) for name, status in await centre.rows("select list_name, status from notifications")}


@pytest.mark.req("CHN-11")
async def test_each_list_gets_a_part_with_a_derived_id(alarm: Centre) -> None:
    whole = await alarm.send("alarm", script="pump.py")
    for name in ("mail", "sms", "teams"):
        part = await alarm.get(part_id(whole, name))
        assert (part.list_name, part.type, part.subject, part.whole_id) == (name, "email", "Pump 3 stopped", whole)
        assert (part.whole_list, part.provenance.script, part.provenance.site) == ("alarm", "pump.py", SITE)
    assert len(await alarm.rows("select 1 from notifications")) == 3
    await alarm.deliver()
    assert sorted(alarm.adapter.sent()) == sorted(part_id(whole, name) for name in ("mail", "sms", "teams"))
    assert await alarm.story(whole) == ["notify_send submitted"]


@pytest.mark.req("CHN-12", "DEC-11")
async def test_unavailable_channel_delays_only_its_part_and_status_names_it(alarm: Centre) -> None:
    away = Held("connection refused", phase="connect", evidence=Evidence.FAILS)
    alarm.adapter.answer("mail", away)
    whole = await alarm.send("alarm")
    await alarm.deliver()
    assert await statuses(alarm) == {"mail": "pending", "sms": "delivered", "teams": "delivered"}
    seen = await watch(alarm).notifications.of_site(whole, SITE)
    assert (seen.status, seen.last_error) == (Status.PENDING, "list 'mail': connection refused")
    detail = await watch(alarm).notifications.detail(whole)
    assert detail.why.startswith("2 of 3 parts are delivered. List 'mail': It is held by the breaker of channel:mail")
    assert [(t.address, t.status) for t in detail.notification.targets] == [
        ("mail", TargetStatus.DUE),
        ("sms", TargetStatus.DELIVERED),
        ("teams", TargetStatus.DELIVERED),
    ]
    with pytest.raises(NotFound):
        await watch(alarm).notifications.of_site(whole, "plant-8")


@pytest.mark.req("CHN-12", "DEC-11")
async def test_retry_of_a_whole_goes_to_its_parked_part_only(alarm: Centre) -> None:
    alarm.adapter.answer("mail", PermanentFailure("550 unknown"))
    whole = await alarm.send("alarm")
    await alarm.deliver()
    seen = (await watch(alarm).notifications.detail(whole)).notification
    assert (seen.status, seen.last_error) == (Status.PARKED, "list 'mail': mail@example.org: 550 unknown")
    actions = NotificationActions(alarm.store, alarm.clock)
    with pytest.raises(NotAsSeen):
        await actions.retry(OPERATOR, whole, seen.version - 1)
    assert (await actions.retry(OPERATOR, whole, seen.version)).status is Status.PENDING
    before = alarm.adapter.count
    await alarm.deliver()
    assert alarm.adapter.sent()[before:] == [part_id(whole, "mail")]
    after = (await watch(alarm).notifications.detail(whole)).notification
    assert after.status is Status.DELIVERED
    assert after.delivered_at is not None
    assert "operator_action submitted" in await alarm.story(part_id(whole, "mail"))
    with pytest.raises(NotAsSeen):
        await actions.retry(OPERATOR, whole, after.version)


@pytest.mark.req("CHN-12")
async def test_discarding_a_whole_discards_its_parked_parts(alarm: Centre) -> None:
    alarm.adapter.answer("mail", PermanentFailure("550 unknown"))
    alarm.adapter.answer("sms", PermanentFailure("no such number"))
    whole = await alarm.send("alarm")
    await alarm.deliver()
    seen = (await watch(alarm).notifications.detail(whole)).notification
    assert seen.last_error == "list 'mail': mail@example.org: 550 unknown; list 'sms': sms@example.org: no such number"
    changed = await NotificationActions(alarm.store, alarm.clock).discard(OPERATOR, whole, seen.version)
    assert changed.status is Status.DISCARDED
    assert await statuses(alarm) == {"mail": "discarded", "sms": "discarded", "teams": "delivered"}


@pytest.mark.req("CHN-12")
async def test_the_same_id_again_is_a_duplicate_or_a_conflict(alarm: Centre) -> None:
    item = alarm.item("alarm")
    assert (await alarm.submit(item)).results[0].verdict == "accepted"
    assert (await alarm.submit(item)).results[0].verdict == "duplicate"
    for other in (
        alarm.item("alarm", notification_id=item.notification_id, body="other"),
        alarm.item("mail", notification_id=item.notification_id),
    ):
        result = (await alarm.submit(other)).results[0]
        assert (result.verdict, result.code) == ("rejected", "notification.conflict")
    plain = await alarm.send("mail")
    result = (await alarm.submit(alarm.item("alarm", notification_id=plain))).results[0]
    assert (result.verdict, result.code) == ("rejected", "notification.conflict")
    # Once the list is gone the id is still known.
    await alarm.store.write(lists.remove_list, "alarm")
    assert (await alarm.submit(item)).results[0].verdict == "duplicate"
    assert len(await alarm.rows("select 1 from notifications")) == 4


@pytest.mark.req("CHN-11")
async def test_one_batch_holds_wholes_ordinary_and_repeated_ones(alarm: Centre) -> None:
    known = await alarm.send("alarm")
    items = [alarm.item("alarm"), alarm.item("mail"), alarm.item("alarm", notification_id=known), alarm.item("missing")]
    ack = await alarm.submit(items[0], *items)
    assert [result.verdict for result in ack.results] == ["accepted", "duplicate", "accepted", "duplicate", "accepted"]
    assert len(await alarm.rows("select 1 from notifications")) == 3 + 3 + 1 + 1


@pytest.mark.req("CHN-11")
async def test_the_part_of_a_missing_list_parks_and_names_it(alarm: Centre) -> None:
    await alarm.store.write(lists.remove_list, "sms")
    whole = await alarm.send("alarm")
    await alarm.deliver()
    assert await statuses(alarm) == {"mail": "delivered", "sms": "parked", "teams": "delivered"}
    seen = (await watch(alarm).notifications.detail(whole)).notification
    assert (seen.status, seen.last_error) == (Status.PARKED, "list 'sms': there is no list named 'sms'")


@pytest.mark.req("CHN-11")
async def test_a_list_of_lists_without_any_list_parks_the_submission(centre: Centre) -> None:
    """Only a hand-made change can leave it without lists."""
    empty = NotificationList("alarm", "lists")
    await centre.store.write(lists.add_list, empty, centre.clock.now())
    sent = await centre.send("alarm")
    await centre.deliver()
    parked = await centre.get(sent)
    assert (parked.status, parked.last_error) == (
        Status.PARKED,
        "list 'alarm' is a list of lists and names no list to send to",
    )
    item = centre.item("alarm", notification_id=sent)
    assert (await centre.submit(item)).results[0].verdict == "duplicate"


@pytest.mark.req("CHN-11", "ADP-04")
async def test_the_allowed_sites_of_both_lists_apply(centre: Centre) -> None:
    await centre.add_channel()
    await centre.add_list("mail")
    await centre.add_list("sms", allowed_sites=("plant-8",))
    await centre.add_list("alarm", "mail", "sms", type="lists", allowed_sites=("plant-7", "plant-8"))
    await centre.send("alarm", site="plant-7")
    await centre.deliver()
    assert await statuses(centre) == {"mail": "delivered", "sms": "parked"}
    foreign = await centre.send("alarm", site="plant-9")
    await centre.deliver()
    seen = await centre.get(part_id(foreign, "mail"))
    assert seen.status is Status.PARKED
    assert (
        seen.last_error
        == "mail@example.org: site 'plant-9' may not send to list 'alarm'; allowed sites: 'plant-7', 'plant-8'"
    )
    # A retry checks again.
    assert await centre.retry(part_id(foreign, "mail"))
    await centre.deliver()
    assert (await centre.get(part_id(foreign, "mail"))).status is Status.PARKED


@pytest.mark.req("CHN-12", "KPI-01")
async def test_kpis_count_parts_and_never_wholes(alarm: Centre) -> None:
    await alarm.send("alarm")
    await alarm.send("mail")
    assert (await watch(alarm).kpis.now()).total["queue_depth"] == 4
    page = await watch(alarm).notifications.page()
    assert len(page.lines) == 4


@pytest.mark.req("CHN-12")
async def test_a_whole_is_purged_with_its_last_part(alarm: Centre, clock: ManualClock) -> None:
    alarm.adapter.answer("mail", Held("connection refused", phase="connect", evidence=Evidence.FAILS))
    alarm.adapter.answer("sms", PermanentFailure("no such number"))
    item = alarm.item("alarm")
    await alarm.submit(item)
    await alarm.deliver()
    leader = Leader(alarm.store, "node-1", clock, UpkeepOptions())
    purge = Purge(alarm.store, clock, leader)
    clock.advance(YEAR_S)
    assert await leader.campaign()
    assert await purge.sweep()
    assert await statuses(alarm) == {"mail": "pending"}
    detail = await watch(alarm).notifications.detail(item.notification_id)
    assert detail.notification.status is Status.PENDING
    assert "The rows of 2 parts are purged." in detail.why
    assert (await alarm.submit(item)).results[0].verdict == "duplicate"
    await alarm.execute(
        "update notifications set status = 'delivered', delivered_at = created_at, terminal_at = created_at,"
        " due_at = null, held_by = null, held_reason = null"
    )
    assert (await watch(alarm).notifications.detail(item.notification_id)).notification.status is Status.PARKED
    clock.advance(1)
    assert await leader.campaign()
    assert await purge.sweep()
    assert await alarm.rows("select 1 from wholes") == []
    assert await alarm.rows("select 1 from notifications") == []
    kept = await alarm.rows("select status from tombstones where whole_id is null")
    assert kept == [("parked",)]
    assert (await alarm.submit(item)).results[0].verdict == "duplicate"


async def test_the_ceiling_of_a_site_counts_parts(alarm: Centre) -> None:
    ingest = Ingest(alarm.store, alarm.clock, IngestOptions(site_rows_max=16))
    verdicts = []
    for _ in range(8):
        ack = await ingest.submit(SITE, submit_of("alarm", new_id(alarm.clock.now(), os.urandom(10))))
        verdicts.append(ack.results[0].verdict)
    assert verdicts == ["accepted"] * 6 + ["later"] * 2


@pytest.mark.req("CHN-11")
async def test_four_processes_submitting_the_same_id_create_each_part_once(pg_url: str) -> None:
    async with open_centre(pg_url, SystemClock()) as centre:
        for name in ("mail", "sms", "teams"):
            await centre.add_list(name)
        await centre.add_list("alarm", "mail", "sms", "teams", type="lists")
        ids = [new_id(datetime.now(UTC), os.urandom(10)) for _ in range(4)]
        script = str(Path(submitting_process.__file__))
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, script, pg_url, str(COPIES), "alarm", *ids),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(PROCESSES)
        ]
        async with asyncio.timeout(120):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            printed = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
        verdicts = Counter(line for out, _ in printed for line in out.decode().splitlines())
        for one in ids:
            assert verdicts[f"{one} accepted"] == 1
            assert verdicts[f"{one} duplicate"] == PROCESSES * COPIES - 1
        found = await centre.rows("select notification_id from notifications")
        assert sorted(str(row[0]) for row in found) == sorted(
            part_id(one, name) for one in ids for name in ("mail", "sms", "teams")
        )


@pytest.mark.req("CHN-11")
async def test_four_ingests_of_one_process_create_each_part_once_on_sqlite(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    try:
        for one in ("mail", "sms"):
            made = NotificationList(one, "email", targets=("a@example.org",))
            await store.write(lists.add_list, made, datetime.now(UTC))
        whole = NotificationList("alarm", "lists", targets=("mail", "sms"))
        await store.write(lists.add_list, whole, datetime.now(UTC))
        submit = submit_of("alarm", new_id(datetime.now(UTC), os.urandom(10)))
        ingests = [Ingest(store, SystemClock()) for _ in range(PROCESSES)]
        acks = await asyncio.gather(*(one.submit(SITE, submit) for one in ingests for _ in range(COPIES)))
        verdicts = Counter(ack.results[0].verdict for ack in acks)
        assert verdicts == {"accepted": 1, "duplicate": PROCESSES * COPIES - 1}
    finally:
        await store.close()


async def test_an_id_submitted_to_a_list_and_a_list_of_lists_at_once_is_stored_once(alarm: Centre) -> None:
    ingests = [Ingest(alarm.store, alarm.clock) for _ in range(2)]
    for _ in range(20):
        notification_id = new_id(alarm.clock.now(), os.urandom(10))
        acks = await asyncio.gather(
            ingests[0].submit(SITE, submit_of("mail", notification_id)),
            ingests[1].submit(SITE, submit_of("alarm", notification_id)),
        )
        verdicts = sorted(ack.results[0].verdict for ack in acks)
        assert verdicts == ["accepted", "rejected"]
