"""Bulk actions on both stores: the set is fixed at the start, each row has its outcome, any node goes on."""

from typing import Any

import pytest
from sqlalchemy import Connection
from structlog.testing import capture_logs

from fieldpost.central.operate import bulk_step
from fieldpost.central.operate.bulk_actions import BulkActionRunner, Chosen
from fieldpost.central.store.engine.purging import BEGINNING, PurgeRange
from fieldpost.central.store.search import bulk_actions as rows
from fieldpost.central.store.search.bulk_actions import BulkRow
from fieldpost.central.watch import bulk_actions as watching
from fieldpost.core.actor import Actor, Role
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, RowOutcome
from fieldpost.core.delivery.outcome import Delivered, PermanentFailure
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import Centre

OLGA = Actor("olga", Role.OPERATOR)
PARKED = Filter()


async def parked(centre: Centre, count: int, list_name: str = "ops", error: str = "550 no such user") -> list[str]:
    """So many that failed for good."""
    centre.adapter.answer(list_name, *[PermanentFailure(error)] * count)
    ids = await centre.send_many(count, list_name)
    await centre.deliver()
    assert {(await centre.get(i)).status for i in ids} == {Status.PARKED}
    if isinstance(centre.clock, ManualClock):
        centre.clock.advance(1)
    return ids


async def act_of(centre: Centre, act: BulkAction) -> BulkAction:
    found = await centre.store.read(rows.get, act.action_id)
    assert found is not None
    return found


async def rows_of(centre: Centre, act: BulkAction) -> list[BulkRow]:
    return await centre.store.read(rows.rows_of, act.action_id, limit=10_000)


async def turn(centre: Centre) -> bool:
    """One turn of the act that is due; False when none is."""
    action_id = await centre.store.read(rows.next_due, now=centre.store.now())
    if action_id is None:
        return False
    return await centre.store.write(bulk_step.step, action_id, now=centre.store.now()) is not None


async def turns(centre: Centre, count: int) -> None:
    for _ in range(count):
        assert await turn(centre)


@pytest.fixture
def bulk(mailing: Centre) -> BulkActionRunner:
    return BulkActionRunner(mailing.store, mailing.clock)


@pytest.mark.req("CMD-04", "CMD-08", "DEC-15")
async def test_bulk_retry_returns_all_matching_rows_and_audits_each_with_name_and_reason(
    mailing: Centre, bulk: BulkActionRunner
) -> None:
    await mailing.add_list("night")
    ids = await parked(mailing, 7)
    others = await parked(mailing, 2, "night")
    act = await bulk.start(OLGA, BulkVerb.RETRY, Filter(list_name="ops"), "the server is mended")
    assert (act.status, act.actor, act.wanted) == (BulkStatus.GATHERING, "olga", {"status": ["parked"], "list": "ops"})
    assert await bulk.sweep() == 7
    ended = await act_of(mailing, act)
    assert (ended.status, ended.total, ended.done, ended.refused) == (BulkStatus.FINISHED, 7, 7, 0)
    assert {row.notification_id for row in await rows_of(mailing, act)} == set(ids)
    for i in ids:
        n = await mailing.get(i)
        assert (n.status, n.cycle, n.retry_count, n.last_error) == (Status.PENDING, 2, 0, None)
        entry = (await mailing.audit(i))[-1]
        assert (entry.kind, entry.status, entry.actor) == ("operator_action", "submitted", "olga")
        assert (entry.request_summary, entry.bulk_action_id) == ("the server is mended", act.action_id)
    assert {(await mailing.get(i)).status for i in others} == {Status.PARKED}
    await mailing.deliver()
    assert {(await mailing.get(i)).status for i in ids} == {Status.DELIVERED}


@pytest.mark.req("CMD-05", "CMD-09", "AUD-07")
async def test_bulk_discard_discards_all_matching_rows(mailing: Centre, bulk: BulkActionRunner) -> None:
    ids = await parked(mailing, 3)
    await bulk.start(OLGA, BulkVerb.DISCARD, PARKED, "nobody needs them now")
    assert await bulk.sweep() == 3
    for i in ids:
        entry = (await mailing.audit(i))[-1]
        assert ((await mailing.get(i)).status, entry.status, entry.error_message) == ("discarded", "discarded", None)


async def test_rows_parked_after_the_start_are_not_included(
    mailing: Centre, bulk: BulkActionRunner, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an arrival nor one that was retried and failed again, though both park before it is gathered."""
    monkeypatch.setattr(bulk_step, "GATHER_MAX", 2)
    old = await parked(mailing, 5)
    act = await bulk.start(OLGA, BulkVerb.DISCARD, PARKED, "old stuff")
    clock.advance(1)
    await turns(mailing, 1)
    new = await parked(mailing, 2)
    again = min(old)  # the last in the order of the list
    await mailing.retry(again)
    mailing.adapter.answer("ops", PermanentFailure("550 still unknown"))
    await mailing.deliver()
    assert await bulk.sweep() == 4
    assert (await act_of(mailing, act)).total == 4
    assert {i for i in old if (await mailing.get(i)).status is Status.DISCARDED} == set(old) - {again}
    assert {(await mailing.get(i)).status for i in [*new, again]} == {Status.PARKED}


async def test_time_of_the_preview_limits_the_action(mailing: Centre, bulk: BulkActionRunner) -> None:
    await parked(mailing, 3)
    preview = await watching.BulkActionReader(mailing.store).preview(PARKED)
    assert (preview.count, preview.is_whole) == (3, True)
    later = await parked(mailing, 2)
    assert (await watching.BulkActionReader(mailing.store).preview(PARKED)).count == 5
    act = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "as seen", as_of=preview.as_of)
    assert await bulk.sweep() == 3
    assert (await act_of(mailing, act)).total == 3
    assert {(await mailing.get(i)).status for i in later} == {Status.PARKED}


async def test_each_row_has_its_outcome_done_conflict_or_gone(
    mailing: Centre, bulk: BulkActionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 3)
    done, retried, parked_again, gone = await parked(mailing, 4)
    act = await bulk.start(OLGA, BulkVerb.DISCARD, PARKED, "too old")
    await turns(mailing, 1)
    await mailing.retry(retried)
    await mailing.retry(parked_again)
    mailing.adapter.answer("ops", Delivered(), PermanentFailure("550 again"))
    for _ in range(2):
        await mailing.deliver()
    after = {i: (await mailing.get(i)).status for i in (retried, parked_again)}
    await mailing.execute(f"delete from notifications where notification_id = '{gone}'")
    await bulk.sweep()
    ended = await act_of(mailing, act)
    assert (ended.status, ended.total, ended.done, ended.conflicts, ended.gone) == (BulkStatus.FINISHED, 4, 1, 2, 1)
    found = {row.notification_id: (row.outcome, row.current_status) for row in await rows_of(mailing, act)}
    assert found == {
        done: (RowOutcome.DONE, None),
        retried: (RowOutcome.CONFLICT, after[retried]),
        parked_again: (RowOutcome.CONFLICT, after[parked_again]),
        gone: (RowOutcome.GONE, None),
    }
    assert sorted(after.values()) == [Status.DELIVERED, Status.PARKED], "parked once more is not as it was seen either"
    assert {i: (await mailing.get(i)).status for i in after} == after


async def test_selection_is_checked_against_the_versions_seen(mailing: Centre, bulk: BulkActionRunner) -> None:
    seen, stale, unseen = await parked(mailing, 3)
    delivered = await mailing.send()
    await mailing.deliver()
    unknown = "0198c8a0-0000-7000-8000-000000000001"
    version = (await mailing.get(seen)).version
    chosen = [Chosen(seen, version), Chosen(stale, version - 1), Chosen(unseen), Chosen(delivered), Chosen(unknown)]
    act = await bulk.start(OLGA, BulkVerb.RETRY, [*chosen, Chosen(unseen)], "these")
    assert (act.status, act.total) == (BulkStatus.RUNNING, 5), "one that is named twice counts once"
    assert await bulk.sweep() == 2
    outcomes = {row.notification_id: row.outcome for row in await rows_of(mailing, act)}
    assert outcomes == {seen: "done", stale: "conflict", unseen: "done", delivered: "conflict", unknown: "gone"}


async def test_any_node_continues_after_another_was_killed(
    mailing: Centre, bulk: BulkActionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn in which it was killed is rolled back whole; nothing is lost and nothing done twice."""
    monkeypatch.setattr(bulk_step, "BATCH", 2)
    ids = await parked(mailing, 5)
    act = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "mended")
    await turns(mailing, 2)
    assert (await act_of(mailing, act)).done == 2

    def killed(conn: Connection, **more: Any) -> None:
        bulk_step.step(conn, act.action_id, **more)
        raise RuntimeError("killed before the commit")

    with pytest.raises(RuntimeError):
        await mailing.store.write(killed, now=mailing.store.now())
    assert (await act_of(mailing, act)).done == 2
    other = BulkActionRunner(mailing.store, mailing.clock)
    assert await other.sweep() == 3
    assert (await act_of(mailing, act)).status is BulkStatus.FINISHED
    for i in ids:
        assert (await mailing.get(i)).cycle == 2
        assert (await mailing.story(i)).count("operator_action submitted") == 1


async def test_step_repeated_after_a_lost_commit_answer_has_no_second_effect(
    mailing: Centre, bulk: BulkActionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 2)
    ids = await parked(mailing, 4)
    await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "mended")
    while await turn(mailing):
        await turn(mailing)
    for i in ids:
        assert (await mailing.story(i)).count("operator_action submitted") == 1


async def test_cancelled_action_stops_and_keeps_its_results(
    mailing: Centre, bulk: BulkActionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 2)
    ids = await parked(mailing, 5)
    act = await bulk.start(OLGA, BulkVerb.DISCARD, PARKED, "wrong button")
    await turns(mailing, 2)
    cancelled = await bulk.cancel(Actor("otto", Role.OPERATOR), act.action_id)
    assert (cancelled.status, cancelled.done, cancelled.note) == (BulkStatus.CANCELLED, 2, "cancelled by otto")
    assert await bulk.sweep() == 0
    assert [(await mailing.get(i)).status for i in ids].count(Status.DISCARDED) == 2
    assert (await bulk.cancel(OLGA, act.action_id)).note == "cancelled by otto", "once more does no harm"


async def test_ended_action_cannot_be_cancelled_and_unknown_one_is_not_found(
    mailing: Centre, bulk: BulkActionRunner
) -> None:
    act = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "nothing is parked")
    await bulk.sweep()
    assert ((await act_of(mailing, act)).status, act.total) == (BulkStatus.FINISHED, 0)
    with pytest.raises(Conflict) as refused:
        await bulk.cancel(OLGA, act.action_id)
    assert refused.value.code == "bulk.ended"
    for unknown in ("0198c8a0-0000-7000-8000-000000000001", "no id"):
        with pytest.raises(NotFound):
            await bulk.cancel(OLGA, unknown)


async def test_two_actions_take_turns(mailing: Centre, bulk: BulkActionRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one need not wait until a large one is done."""
    monkeypatch.setattr(bulk_step, "BATCH", 1)
    await mailing.add_list("night")
    await parked(mailing, 20)
    await parked(mailing, 1, "night")
    large = await bulk.start(OLGA, BulkVerb.RETRY, Filter(list_name="ops"), "large")
    small = await bulk.start(OLGA, BulkVerb.RETRY, Filter(list_name="night"), "small")
    for _ in range(6):
        mailing.clock.advance(0.001)  # type: ignore[attr-defined]
        await turns(mailing, 1)
    assert (await act_of(mailing, small)).status is BulkStatus.FINISHED
    assert (await act_of(mailing, large)).status is BulkStatus.RUNNING


async def test_action_that_fails_by_a_bug_does_not_block_the_others(
    mailing: Centre, bulk: BulkActionRunner, clock: ManualClock
) -> None:
    await parked(mailing, 2)
    broken = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "broken")
    await mailing.execute(
        f"""update bulk_actions set wanted = '{{"colour": "red"}}' where action_id = '{broken.action_id}'"""
    )
    clock.advance(1)
    good = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "good")
    with capture_logs() as logged:
        assert await bulk.sweep() == 2
    assert [line["action_id"] for line in logged if line["event"] == "bulk.faulted"] == [broken.action_id]
    assert (await act_of(mailing, good)).status is BulkStatus.FINISHED
    assert (await act_of(mailing, broken)).status is BulkStatus.GATHERING, "it is tried again later"


async def test_a_retry_in_stages_tries_one_then_ten_then_the_rest(
    mailing: Centre, bulk: BulkActionRunner, clock: ManualClock
) -> None:
    await parked(mailing, 30)
    act = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "carefully", in_stages=True)
    tried = []
    while not (now := await act_of(mailing, act)).status.has_ended:
        await bulk.sweep()
        tried.append((await act_of(mailing, act)).done)
        await mailing.deliver()
        clock.advance(2)
    assert (now.status, now.done) == (BulkStatus.FINISHED, 30)
    assert list(dict.fromkeys(tried)) == [1, 11, 30]


async def test_a_retry_in_stages_halts_when_the_same_error_returns(
    mailing: Centre, bulk: BulkActionRunner, clock: ManualClock
) -> None:
    ids = await parked(mailing, 30)
    act = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "carefully", in_stages=True)
    mailing.adapter.answer("ops", Delivered(), *[Delivered()] * 5, PermanentFailure("550 no such user"))
    for _ in range(4):
        await bulk.sweep()
        await mailing.deliver()
        clock.advance(2)
    halted = await act_of(mailing, act)
    assert (halted.status, halted.done, halted.note) == (
        BulkStatus.HALTED,
        11,
        "the same error occurred again: ops@example.org: 550 no such user",
    )
    assert halted.halting_error_key == fingerprint_key("ops@example.org: 550 no such user")
    assert [(await mailing.get(i)).status for i in ids].count(Status.PARKED) >= 19


async def test_viewer_may_not_start_an_action_and_a_reason_is_required(mailing: Centre, bulk: BulkActionRunner) -> None:
    viewer = Actor("vera", Role.VIEWER)
    with pytest.raises(Denied):
        await bulk.start(viewer, BulkVerb.RETRY, PARKED, "please")
    with pytest.raises(Denied):
        await bulk.cancel(viewer, "0198c8a0-0000-7000-8000-000000000001")
    for reason in ("", "  ", "two\nlines", "x" * 257):
        with pytest.raises(InvalidInput) as refused:
            await bulk.start(OLGA, BulkVerb.RETRY, PARKED, reason)
        assert refused.value.field == "reason"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Filter(statuses=(Status.DELIVERED,)), "bulk.status"),
        (Filter(statuses=(Status.PARKED, Status.PENDING)), "bulk.status"),
        (Filter(is_stuck=True), "bulk.stuck"),
        (Filter(is_overdue=True), "bulk.overdue"),
    ],
)
async def test_action_on_rows_that_are_not_parked_is_rejected(
    bulk: BulkActionRunner, wanted: Filter, code: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bulk.start(OLGA, BulkVerb.RETRY, wanted, "please")
    assert refused.value.code == code


async def test_old_actions_are_purged_in_batches_and_running_ones_never(
    mailing: Centre, bulk: BulkActionRunner
) -> None:
    await parked(mailing, 5)
    old = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "done long ago")
    await bulk.sweep()
    running = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "still to be done")
    mailing.clock.advance(400 * 86400)  # type: ignore[attr-defined]
    now = mailing.clock.now()
    deleted = []
    while True:
        batch = await mailing.store.write(rows.purge, PurgeRange(now, BEGINNING, 2, now))
        deleted.append(batch.deleted)
        if batch.after is None:
            break
    assert deleted == [2, 2, 1]
    assert await mailing.store.read(rows.get, old.action_id) is None
    assert (await act_of(mailing, running)).status is BulkStatus.GATHERING


@pytest.mark.bad_input(55)
async def test_action_requested_twice_under_one_id_is_started_once(mailing: Centre, bulk: BulkActionRunner) -> None:
    await parked(mailing, 2)
    action_id = bulk.new_action_id()
    first = await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "mended", action_id=action_id)
    assert await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "mended", action_id=action_id) == first
    for verb, reason in ((BulkVerb.DISCARD, "mended"), (BulkVerb.RETRY, "another")):
        with pytest.raises(Conflict) as error:
            await bulk.start(OLGA, verb, PARKED, reason, action_id=action_id)
        assert error.value.code == "bulk.other"
    with pytest.raises(InvalidInput):
        await bulk.start(OLGA, BulkVerb.RETRY, PARKED, "mended", action_id="mine")
    assert [act.action_id for act in await mailing.store.read(rows.newest, 10)] == [action_id]
    assert len(await mailing.rows("select event_id from audit where actor = 'olga'")) == 1


async def test_actions_are_paged_newest_first_even_at_the_same_time(mailing: Centre, bulk: BulkActionRunner) -> None:
    [one] = await parked(mailing, 1)
    begun = [
        (await bulk.start(OLGA, BulkVerb.RETRY, [Chosen(one)], f"reason {number}")).action_id for number in range(5)
    ]
    looking = watching.BulkActionReader(mailing.store)
    seen, cursor = [], None
    while True:
        page = await looking.page(limit=2, cursor=cursor)
        seen += [act.action_id for act in page.actions]
        if (cursor := page.next_cursor) is None:
            break
    assert len(seen) == 5
    assert set(seen) == set(begun)
    with pytest.raises(InvalidInput) as error:
        await looking.page(cursor="AAAA")
    assert error.value.field == "cursor"


async def test_history_of_an_action_describes_its_rows(mailing: Centre, bulk: BulkActionRunner) -> None:
    ids = await parked(mailing, 3)
    never = "0198c8a0-0000-7000-8000-000000000001"
    act = await bulk.start(OLGA, BulkVerb.DISCARD, [Chosen(i) for i in (*ids, never)], "not wanted")
    await bulk.sweep()
    story = await watching.BulkActionReader(mailing.store).story(act.action_id, limit=4)
    assert [row.notification_id for row in story.page.rows] == [*ids, never]
    assert set(story.notifications) == set(ids)
    assert {n.status for n in story.notifications.values()} == {Status.DISCARDED}
    assert (story.action.done, story.action.gone) == (3, 1)
    with pytest.raises(NotFound):
        await watching.BulkActionReader(mailing.store).story(never)
