"""Ingest: each item judged for itself, the ack only after the commit, and a resend that changes nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import IntegrityError

from fieldpost.central.ingest.fair_queue import Pace
from fieldpost.central.ingest.submit import Ingest, IngestOptions
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.notifications import audit, lists, records
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.notification import Status
from fieldpost.link.messages import Ack, Item, Submit
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre, open_centre
from support.pg_proxy import pg_proxy
from support.running_central import until

NEVER = "019b76da-a800-7000-8000-000000000000"


def verdicts(ack: Ack) -> list[str]:
    return [result.verdict for result in ack.results]


async def count(centre: Centre) -> int:
    return sum((await centre.store.read(kpis.count_by_status)).values())


@pytest.mark.req("ING-01", "ING-02", "ING-04", "ING-10", "TOP-03", "LIF-02")
async def test_a_new_item_is_accepted_and_becomes_a_pending_row(centre: Centre, clock: ManualClock) -> None:
    first, second = centre.item(), centre.item("it")
    ack = await centre.submit(first, second)
    assert (ack.seq, [r.notification_id for r in ack.results]) == (1, [first.notification_id, second.notification_id])
    assert verdicts(ack) == ["accepted", "accepted"]
    n = await centre.get(first.notification_id)
    assert (n.status, n.list_name, n.subject, n.body) == (Status.PENDING, "ops", first.subject, first.body)
    assert n.provenance.site == SITE
    assert ack.credits > 0


@pytest.mark.req("ING-04", "ING-06", "DEC-01", "DEC-12")
@pytest.mark.fault(17)
async def test_resend_is_acked_as_a_duplicate_and_changes_nothing(mailing: Centre, clock: ManualClock) -> None:
    items = [mailing.item() for _ in range(3)]
    await mailing.submit(*items)
    await mailing.deliver()
    before = [await mailing.get(item.notification_id) for item in items]
    told = [await mailing.audit(item.notification_id) for item in items]
    clock.advance(3600)
    assert verdicts(await mailing.submit(*items, mailing.item())) == ["duplicate"] * 3 + ["accepted"]
    assert [await mailing.get(item.notification_id) for item in items] == before
    assert [await mailing.audit(item.notification_id) for item in items] == told
    await mailing.deliver()
    assert len(mailing.adapter.envelopes) == 4, "one delivery each, and one of the new item"


@pytest.mark.req("AUD-09", "DEC-14", "AUD-04", "AUD-05")
async def test_the_send_is_audited_with_the_row(centre: Centre, clock: ManualClock) -> None:
    sent = await centre.send(script="watch.py", instance="pump-3", execution_id="run-17", parent_execution_id="run-16")
    [entry] = await centre.audit(sent)
    assert (entry.kind, entry.status, entry.actor, entry.target) == ("notify_send", "submitted", "watch.py", "ops")
    assert (entry.correlation_id, entry.execution_id, entry.parent_execution_id) == (sent, "run-17", "run-16")
    assert (entry.source_site_id, entry.source_instance_id, entry.source_script) == (SITE, "pump-3", "watch.py")
    assert entry.occurred_at == clock.now()


@pytest.mark.req("DEC-12", "ING-08")
@pytest.mark.bad_input(9)
async def test_same_id_with_other_content_is_rejected_and_audited_and_the_first_row_stays(
    centre: Centre, clock: ManualClock
) -> None:
    first = centre.item()
    await centre.submit(first)
    before = await centre.get(first.notification_id)
    clock.advance(1)
    for other in ({"subject": "other"}, {"body": "other"}, {"list_name": "other"}):
        given: dict[str, Any] = {"notification_id": first.notification_id, **other}
        [result] = (await centre.submit(centre.item(**given))).results
        assert (result.verdict, result.code) == ("rejected", "notification.conflict")
    assert await centre.get(first.notification_id) == before
    entries = await centre.audit(first.notification_id)
    assert [(e.kind, e.status) for e in entries] == [("notify_send", "submitted")] + [("notify_send", "failed")] * 3
    assert all("conflict" in str(e.error_message) for e in entries[1:])


@pytest.mark.req("DEC-12")
@pytest.mark.bad_input(10)
@pytest.mark.threat(3)
async def test_id_of_another_site_is_rejected_without_details(centre: Centre, clock: ManualClock) -> None:
    first = centre.item(subject="secret plan", body="of plant 7")
    await centre.submit(first, site=SITE)
    before = await centre.get(first.notification_id)
    clock.advance(1)
    # Even the very same content: an id belongs to the site that sent it.
    [result] = (await centre.submit(first, site="another")).results
    assert (result.verdict, result.code) == ("rejected", "notification.conflict")
    assert not {"secret", "plan", SITE} & set(str(result).replace("'", " ").split())
    assert await centre.get(first.notification_id) == before
    assert (await centre.audit(first.notification_id))[-1].source_site_id == "another"


@pytest.mark.req("DEC-12")
@pytest.mark.bad_input(11)
@pytest.mark.threat(1)
async def test_site_is_taken_from_the_token_and_never_from_the_message(centre: Centre) -> None:
    honest, liar = centre.item(site=SITE), centre.item(site="another")
    ack = await centre.submit(honest, liar, site=SITE)
    assert verdicts(ack) == ["accepted", "rejected"]
    assert ack.results[1].code == "submit.other_site"
    assert (await centre.get(honest.notification_id)).provenance.site == SITE
    assert await centre.store.read(records.get, liar.notification_id) is None


@pytest.mark.req("DEC-13")
@pytest.mark.bad_input(17)
@pytest.mark.fault(20)
async def test_invalid_item_does_not_affect_its_neighbours(centre: Centre) -> None:
    good = [centre.item() for _ in range(2)]
    bad = centre.item(subject="two\nlines")
    ack = await centre.submit(good[0], bad, good[1])
    assert verdicts(ack) == ["accepted", "rejected", "accepted"]
    assert (ack.results[1].notification_id, ack.results[1].code) == (bad.notification_id, "text.line_break")
    assert "subject" in str(ack.results[1].error)
    assert await count(centre) == 2


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"list_name": ""}, "text.empty"),
    "long list": ({"list_name": "x" * 129}, "text.too_long"),
    "control character in a list": ({"list_name": "o\x07ps"}, "text.control"),
    "NUL in the body": ({"body": "a\x00b"}, "text.nul"),
    "lone surrogate": ({"body": "\ud800"}, "text.surrogate"),
    "long subject": ({"subject": "é" * 500}, "text.too_long"),
    "body one byte too long": ({"body": "x" * (256 * 1024 + 1)}, "text.too_long"),
    "NEL in the subject": ({"subject": "a\x85b"}, "text.line_break"),
    "bad script": ({"script": "a\nb"}, "text.control"),
    "bad execution": ({"execution_id": "x" * 257}, "text.too_long"),
}


@pytest.mark.req("DEC-36")
@pytest.mark.parametrize(("changes", "code"), BAD.values(), ids=BAD)
async def test_text_that_breaks_a_rule_is_rejected_by_name(centre: Centre, changes: dict[str, Any], code: str) -> None:
    given: dict[str, Any] = {"list_name": "ops", **changes}
    [result] = (await centre.submit(centre.item(**given))).results
    assert (result.verdict, result.code) == ("rejected", code)
    assert next(iter(changes)) in str(result.error), "the field is named"
    assert await count(centre) == 0


@pytest.mark.req("DEC-36")
async def test_text_at_its_limits_is_stored_unchanged(centre: Centre) -> None:
    body = "é" * (128 * 1024)
    sent = await centre.send("x" * 128, subject="é" * 499, body=body)
    n = await centre.get(sent)
    assert (n.list_name, n.subject, n.body) == ("x" * 128, "é" * 499, body)


@pytest.mark.bad_input(12)
@pytest.mark.parametrize(
    "spell",
    [
        str.upper,
        lambda i: f"{{{i}}}",
        lambda i: i.replace("-", ""),
        lambda _: "00000000-0000-0000-0000-000000000000",
        lambda _: "x" * 1000,
        lambda i: i + "\n",
        lambda _: "",
    ],
    ids=["capitals", "braces", "no dashes", "nil", "long", "line break", "empty"],
)
async def test_id_in_another_spelling_is_rejected(centre: Centre, spell: Callable[[str], str]) -> None:
    right = centre.item(notification_id="019b76da-a8ff-7abc-9def-0123456789ab")
    wrong = centre.item(notification_id=spell(right.notification_id) or " ")
    ack = await centre.submit(right, wrong)
    assert verdicts(ack) == ["accepted", "rejected"]
    assert ack.results[1].code == "notification.bad_id"
    assert len(ack.results[1].notification_id) <= 64
    assert await count(centre) == 1


@pytest.mark.bad_input(17)
async def test_the_same_id_twice_in_one_batch_becomes_one_row(centre: Centre) -> None:
    first = centre.item()
    other = centre.item(subject="other", notification_id=first.notification_id)
    assert verdicts(await centre.submit(first, first, other)) == ["accepted", "duplicate", "rejected"]
    assert (await centre.get(first.notification_id)).subject == first.subject
    assert sorted(await centre.story(first.notification_id)) == ["notify_send failed", "notify_send submitted"]


@pytest.mark.bad_input(17)
async def test_empty_batch_is_acked_and_oversized_one_is_rejected_as_a_whole(centre: Centre) -> None:
    assert (await centre.submit()).results == ()
    items = [centre.item() for _ in range(501)]
    with pytest.raises(InvalidInput) as caught:
        await centre.submit(*items)
    assert (caught.value.code, caught.value.field) == ("submit.too_many", "items")
    assert await count(centre) == 0
    assert set(verdicts(await centre.submit(*items[:500]))) == {"accepted"}


@pytest.mark.bad_input(18)
@pytest.mark.req("TBL-12", "DEC-04", "TOP-07")
@pytest.mark.parametrize(
    ("given", "stored", "kept"),
    [
        ("2026-01-01T09:00:00.123456+01:00", "2026-01-01 08:00:00.123456+00:00", None),
        ("1970-01-01T00:00:00Z", "1970-01-01 00:00:00+00:00", None),
        ("2026-01-01T00:00:00+14:00", "2025-12-31 10:00:00+00:00", None),
        ("9999-12-31T23:59:59Z", "9999-12-31 23:59:59+00:00", None),
        ("9999-12-31T23:59:59-12:00", "None", "9999-12-31T23:59:59-12:00"),
        ("2026-01-01T08:00:00", "None", "2026-01-01T08:00:00"),
        ("2016-12-31T23:59:60Z", "None", "2016-12-31T23:59:60Z"),
        ("yesterday", "None", "yesterday"),
    ],
)
async def test_time_of_the_site_is_stored_as_a_time_or_as_text(
    centre: Centre, clock: ManualClock, given: str, stored: str, kept: str | None
) -> None:
    n = await centre.get(await centre.send(enqueued_at=given))
    assert (str(n.site_enqueued_at), n.site_enqueued_text) == (stored, kept)
    assert n.created_at == n.due_at == clock.now()


@pytest.mark.req("TBL-03", "RES-08", "DEC-65", "TOP-06")
async def test_type_and_delivery_key_come_from_the_current_list(centre: Centre) -> None:
    await centre.add_list("chat", type="teams")
    known, unknown = await centre.get(await centre.send("chat")), await centre.get(await centre.send("nobody"))
    assert (known.type, known.delivery_key) == ("teams", "list:chat")
    assert (unknown.type, unknown.delivery_key) == ("unresolved", "list:nobody")
    await centre.store.write(lists.remove_list, "chat")
    assert (await centre.get(known.notification_id)).type == "teams"


@pytest.mark.req("ING-03", "ING-05", "DEC-02")
async def test_no_ack_without_a_commit(centre: Centre) -> None:
    """The database refuses only at COMMIT, when every statement has gone through."""
    await centre.execute(
        "create table parents (id integer primary key)",
        "create table children (id integer references parents deferrable initially deferred)",
    )
    await centre.execute(*on_insert(centre, "audit", "insert into children values (1)"))
    item = centre.item()
    with pytest.raises(IntegrityError):
        await centre.submit(item)
    assert await count(centre) == 0
    assert await centre.store.read(audit.of_notification, item.notification_id) == []
    await centre.execute("insert into parents values (1)")
    assert verdicts(await centre.submit(item)) == ["accepted"]


@pytest.mark.req("ING-05")
@pytest.mark.fault(66)
async def test_unavailable_store_gives_no_ack_and_accepts_the_resend_later(sqlite_url: str) -> None:
    async with open_centre(sqlite_url) as centre:
        await centre.execute("pragma max_page_count = 1")
        items = [centre.item(body="x" * 200_000) for _ in range(2)]
        with pytest.raises(Unavailable) as caught:
            await centre.submit(*items)
        assert caught.value.code == "store.unavailable"
        assert await count(centre) == 0
        await centre.execute("pragma max_page_count = 1000000")
        assert verdicts(await centre.submit(*items)) == ["accepted", "accepted"]


@pytest.mark.req("ING-05")
@pytest.mark.fault(66)
@pytest.mark.parametrize("code", ["25006", "53100", "53300"])
async def test_failing_server_gives_no_ack_and_accepts_the_resend_later(pg_url: str, code: str) -> None:
    async with open_centre(pg_url) as centre:
        raising = f"raise exception 'planted' using errcode = '{code}'"
        await centre.execute(*on_insert(centre, "notifications", raising))
        item = centre.item()
        with pytest.raises(Unavailable):
            await centre.submit(item)
        await centre.execute("drop trigger planted on notifications")
        assert verdicts(await centre.submit(item)) == ["accepted"]


@pytest.mark.fault(61)
@pytest.mark.req("DEC-14")
async def test_item_that_cannot_be_audited_is_not_stored(centre: Centre) -> None:
    await centre.execute(*on_insert(centre, "audit", refusal(centre)))
    item = centre.item()
    with pytest.raises(Exception, match="planted"):
        await centre.submit(item)
    assert await count(centre) == 0


@pytest.mark.req("ING-07", "ING-11")
async def test_items_sent_to_two_nodes_at_once_become_one_row_each(centre: Centre, clock: ManualClock) -> None:
    """A site that lost its ack resends to whichever node answers, while the first still works on it."""
    other_store = open_store(centre.store.url, clock) if centre.is_postgresql else centre.store
    other = Centre(other_store, clock, centre.adapter)
    items = [centre.item() for _ in range(50)]
    try:
        acks = await asyncio.gather(*(node.submit(*items) for node in (centre, other) * 3))
    finally:
        if other_store is not centre.store:
            await other_store.close()
    for number in range(50):
        told = sorted(ack.results[number].verdict for ack in acks)
        assert told == ["accepted"] + ["duplicate"] * 5
    assert await count(centre) == 50


@pytest.mark.fault(29)
@pytest.mark.req("ING-07")
async def test_a_commit_whose_answer_was_lost_is_acked_and_has_no_second_effect(
    pg_url: str, clock: ManualClock
) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_list()
        items = [centre.item() for _ in range(5)]
        proxy.commit_mark, proxy.commits_to_cut = items[0].body.encode(), 1
        ack = await centre.submit(*items)
        assert proxy.commits_cut == 1
        assert set(verdicts(ack)) <= {"accepted", "duplicate"}
        assert await count(centre) == 5
        for item in items:
            assert await centre.story(item.notification_id) == ["notify_send submitted"]


class PurgedBetween:
    """The store of this centre, in which all is purged, tombstones too, before anybody looks what stands there."""

    def __init__(self, centre: Centre) -> None:
        self._centre = centre

    async def confirm(self, *look: Any) -> Any:
        deletes = [f"delete from {table}" for table in ("audit", "search_backlog", "notifications")]
        setting = "select set_config('fieldpost.is_purging', 'true', true)"
        column = "update audit_purges set is_purging = true"
        await self._centre.execute(setting if self._centre.is_postgresql else column, *deletes)
        return await self._centre.store.confirm(*look)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._centre.store, name)


async def test_item_purged_during_its_check_is_requested_again(centre: Centre, clock: ManualClock) -> None:
    item = centre.item()
    await centre.submit(item)
    fresh = centre.item()
    ack = await Ingest(PurgedBetween(centre), clock).submit(SITE, Submit(1, (fresh, item)))
    assert verdicts(ack) == ["accepted", "later"]
    assert ack.results[1].code == "store.changed"
    assert verdicts(await centre.submit(item)) == ["accepted"]


async def test_a_submit_that_meets_a_purge_is_answered_item_by_item(pg_url: str, clock: ManualClock) -> None:
    async with open_centre(pg_url, clock) as centre:
        item, fresh = centre.item(), centre.item()
        await centre.submit(item)
        purge = await asyncpg.connect(pg_url)
        try:
            async with purge.transaction():
                await purge.execute(
                    "insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at)"
                    " select notification_id, source_site_id, digest, 'delivered', now(), now() from notifications"
                )
                await purge.execute("delete from notifications")
                submitting = asyncio.create_task(centre.submit(item, fresh))
                waiting = "select 1 from pg_locks where not granted"
                await until(lambda: purge.fetchval(waiting), 10, "the submit to wait for the purge")
        finally:
            await purge.close()
        assert verdicts(await submitting) == ["duplicate", "later"]
        assert verdicts(await centre.submit(item, fresh)) == ["duplicate", "accepted"]


@pytest.mark.req("DEC-08")
async def test_ingest_wakes_the_dispatcher_after_the_commit(centre: Centre) -> None:
    assert not await centre.store.wake.wait(0.001)
    item = centre.item()
    await centre.submit(item)
    assert await centre.store.wake.wait(5)
    await centre.submit(item, centre.item(notification_id="no id"))
    assert not await centre.store.wake.wait(0.001), "nothing new is due"


def refusal(centre: Centre) -> str:
    return "raise exception 'planted'" if centre.is_postgresql else "select raise(abort, 'planted')"


def on_insert(centre: Centre, table: str, action: str) -> list[str]:
    """The statements that lay a trigger named `planted`."""
    if not centre.is_postgresql:
        return [f"create trigger planted before insert on {table} begin {action}; end"]
    return [
        f"create function planted() returns trigger language plpgsql as $$ begin {action}; return new; end $$",
        f"create trigger planted before insert on {table} for each row execute function planted()",
    ]


@pytest.mark.req("TOP-05", "TOP-06")
def test_items_of_the_link_contain_no_address() -> None:
    """A site names lists only; recipients live at central."""
    assert set(Item.__struct_fields__) == {
        "notification_id",
        "list_name",
        "subject",
        "body",
        "enqueued_at",
        "instance",
        "script",
        "execution_id",
        "parent_execution_id",
        "site",
        "severity",
        "incident",
        "is_cleared",
    }


@pytest.mark.dec("DEC-26")
async def test_late_site_does_not_wait_behind_the_backlog_of_another(centre: Centre) -> None:
    """Both have submits waiting; what is stored next is the turn of whoever had less, oldest first within a site."""
    ingest = centre.ingest
    ingest._pace = Pace(2000, centre.clock.monotonic, ingest._store_group, items_max=10, groups_max=1)
    done: list[str] = []

    async def submit(site: str, number: int) -> None:
        await centre.ingest.submit(site, Submit(number, tuple(centre.item() for _ in range(10)), more=True))
        done.append(f"{site} {number}")

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(submit("early", number))
        await asyncio.sleep(0)
        for number in range(3):
            group.create_task(submit("late", number))
    assert done.index("late 2") <= 7, done
    for site in ("early", "late"):
        own = [int(name.split()[1]) for name in done if name.startswith(site)]
        assert own == sorted(own)


@pytest.mark.dec("DEC-26")
async def test_every_ack_grants_credits_and_a_failing_store_grants_none(centre: Centre) -> None:
    for number in range(4):
        items = tuple(centre.item() for _ in range(50))
        ack = await centre.ingest.submit(f"plant-{number}", Submit(1, items, more=True))
        assert 0 < ack.credits <= IngestOptions().credits
    centre.store.last_failure = Unavailable("store.unavailable", "the disk is full")
    assert centre.ingest.credits == 0
