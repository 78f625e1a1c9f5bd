"""Bulk actions at the console, with scripts blocked: question, beginning, progress, end; and the groups of errors."""

import html
import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from fieldpost.core.bulk import BulkStatus
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.visitor import Visitor, visiting

NO_USER = "550 5.1.1 no such user"
GROUP = f"<address>: {NO_USER}"
ERROR_KEY = fingerprint_key(f"ops@example.org: {NO_USER}")
FULL = "552 5.2.2 mailbox full"


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def park_many(front: Front, count: int, error: str = NO_USER) -> list[str]:
    first = await front.park(error)
    front.centre.adapter.answer("ops", *[PermanentFailure(error, phase="rcpt")] * (count - 1))
    rest = await front.centre.send_many(count - 1, "ops")
    await front.centre.deliver()
    front.clock.advance(1)
    return [first, *rest]


async def submit(visitor: Visitor, **fields: str) -> httpx2.Response:
    """Send the question's form as a browser does, repeated fields and the chosen pace included."""
    form = visitor.page.text.partition('<form class="fields"')[2].partition("</form>")[0]
    pairs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    pairs += re.findall(r'<input type="radio" name="([^"]*)" value="([^"]*)" checked', form)
    data: dict[str, list[str]] = {}
    for name, value in pairs:
        data.setdefault(name, []).append(html.unescape(value))
    answer = await visitor.client.post("/bulk-actions", data=data | {name: [value] for name, value in fields.items()})
    visitor.page = await visitor.client.get(answer.headers["location"]) if answer.status_code == 303 else answer
    return answer


def boxes(visitor: Visitor) -> list[str]:
    return re.findall(r'name="chosen" value="([^"]*)"', visitor.page.text)


def ways(visitor: Visitor) -> dict[str, str]:
    found = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>([^<]*)</a>', visitor.page.text)
    return {html.unescape(text).strip(): html.unescape(path) for path, text in found}


@pytest.mark.req("CMD-04", "CMD-08", "DEC-15", "KPI-13")
async def test_a_selection_is_retried_by_plain_forms_with_a_reason(quick: Front) -> None:
    ids = await park_many(quick, 3)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/notifications?status=parked")
        chosen = [box for box in boxes(visitor) if box.split(".")[0] in ids[:2]]
        visitor.page = await visitor.client.get(
            "/bulk-actions/new", params={"of": "selection", "verb": "retry", "chosen": chosen, "back": "/notifications"}
        )
        assert "Retry 2 parked notifications?" in visitor.text
        assert NO_USER in visitor.text
        answer = await submit(visitor, reason="")
        assert answer.status_code == 422
        assert "Reason must not be empty." in visitor.text
        assert len(boxes(visitor)) == 2, "what was selected is kept"
        await submit(visitor, reason="the address is there now")
        assert "Started." in visitor.text
        assert "a selection" in visitor.text
        await quick.operate.bulk_actions.sweep()
        await visitor.look(visitor.page.url.path)
        assert "2 of 2 done" in visitor.text
    statuses = [(await quick.centre.get(i)).status for i in ids]
    assert statuses == [Status.PENDING, Status.PENDING, Status.PARKED]
    acts = await quick.centre.rows("select actor, request_summary from audit where bulk_action_id is not null")
    assert [tuple(row) for row in acts] == [("operator", "the address is there now")] * 2


async def test_empty_selection_is_reported_and_changes_nothing(quick: Front) -> None:
    await park_many(quick, 2)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/bulk-actions/new?of=selection&verb=discard&back=/notifications")
    assert visitor.page.status_code == 422
    assert "No notifications selected" in visitor.text
    assert await quick.watch.bulk_actions.newest() == []


@pytest.mark.bad_input(55)
async def test_selected_rows_changed_since_are_skipped_and_reported(quick: Front) -> None:
    ids = await park_many(quick, 2)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/notifications")
        chosen = boxes(visitor)
        await visitor.send(f"/notifications/{ids[0]}/retry")
        visitor.page = await visitor.client.get(
            "/bulk-actions/new", params={"of": "selection", "verb": "discard", "chosen": chosen}
        )
        assert "Discard 1 parked notification?" in visitor.text
        assert "1 of the selected notifications has changed since you selected it" in visitor.text
        await submit(visitor, reason="not wanted")
        await quick.operate.bulk_actions.sweep()
    assert (await quick.centre.get(ids[0])).status is Status.PENDING
    assert (await quick.centre.get(ids[1])).status is Status.DISCARDED


@pytest.mark.bad_input(55)
async def test_form_sent_twice_starts_one_action(quick: Front) -> None:
    await park_many(quick, 2)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/bulk-actions/new?verb=retry")
        asked = visitor.page
        places = []
        for _ in range(2):
            visitor.page = asked
            places.append((await submit(visitor, reason="mended")).headers["location"])
        assert places[0] == places[1]
        visitor.page = asked
        other = await submit(visitor, reason="another one")
    assert (other.status_code, "This id belongs to another bulk action" in other.text) == (409, True)
    assert len(await quick.watch.bulk_actions.newest()) == 1


@pytest.mark.req("CMD-09", "DEC-15")
async def test_all_rows_matching_a_filter_are_discarded_and_none_parked_later(quick: Front) -> None:
    ids = await park_many(quick, 12)
    other = await quick.park(FULL)
    async with visiting(quick, "operator") as visitor:
        await visitor.look(f"/notifications?error={ERROR_KEY}")
        await visitor.look(ways(visitor)["Discard all…"])
        assert "Discard 12 parked notifications?" in visitor.text
        assert "and 7 others" in visitor.text
        later = await quick.park(NO_USER)
        await submit(visitor, reason="they have left")
        await quick.operate.bulk_actions.sweep()
        await visitor.look("/bulk-actions")
        assert "12 of 12 done" in visitor.text
        assert "they have left" in visitor.text
    assert {(await quick.centre.get(i)).status for i in ids} == {Status.DISCARDED}
    assert {(await quick.centre.get(i)).status for i in (other, later)} == {Status.PARKED}


async def test_group_is_retried_in_stages_halts_and_names_the_next_step(quick: Front) -> None:
    ids = await park_many(quick, 13)
    await quick.park(FULL)
    async with visiting(quick, "operator") as visitor:
        text = await visitor.look("/parked-groups")
        assert "14 parked notifications, 2 different errors" in text
        assert text.index(f"13 {GROUP}") < text.index(f"1 <address>: {FULL}")
        await visitor.look(ways(visitor)["Retry in stages…"])
        await submit(visitor, reason="is it mended?")
        act_path = visitor.page.url.path
        await quick.operate.bulk_actions.sweep()
        await visitor.look(act_path)
        assert "1 of 13 done" in visitor.text
        assert "waiting for delivery results" in visitor.text
        quick.centre.adapter.answer("ops", PermanentFailure(NO_USER, phase="rcpt"))
        await quick.centre.deliver()
        quick.clock.advance(2)
        await quick.operate.bulk_actions.sweep()
        await visitor.look(act_path)
        assert "Why it halted" in visitor.text
        assert f"the same error occurred again: ops@example.org: {NO_USER}" in visitor.text
        assert "12 were not processed and remain parked" in visitor.text
        assert await visitor.look("/parked-groups")
        assert "halted retry in stages by operator" in visitor.text
        await visitor.look(act_path)
        await visitor.look(ways(visitor)["Retry in stages again…"])
        assert "Retry 13 parked notifications?" in visitor.text
    assert {(await quick.centre.get(i)).status for i in ids} == {Status.PARKED}


async def test_cancelled_action_shows_how_it_ended(quick: Front) -> None:
    await park_many(quick, 2)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/bulk-actions/new?verb=retry")
        await submit(visitor, reason="mended")
        running = visitor.page
        act_path = running.url.path
        await visitor.send(f"{act_path}/cancel")
        assert "Cancelled by operator" in visitor.text
        visitor.page = running
        await visitor.send(f"{act_path}/cancel")
        assert visitor.page.status_code == 200, "to cancel what is cancelled changes nothing"
        quick.clock.advance(1)
        await visitor.look("/bulk-actions/new?verb=discard")
        await submit(visitor, reason="not wanted")
        running = visitor.page
        await quick.operate.bulk_actions.sweep()
        visitor.page = running
        late = await visitor.send(f"{running.url.path}/cancel")
        assert late.status_code == 409
        assert "the bulk action has already ended: it is finished" in visitor.text
    assert {act.status for act in await quick.watch.bulk_actions.newest()} == {
        BulkStatus.FINISHED,
        BulkStatus.CANCELLED,
    }


async def test_rows_of_an_action_are_paged_by_outcome_and_a_wrong_page_is_rejected(quick: Front) -> None:
    await park_many(quick, 52)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/bulk-actions/new?verb=discard")
        await submit(visitor, reason="not wanted")
        await quick.operate.bulk_actions.sweep()
        path = visitor.page.url.path
        await visitor.look(f"{path}?outcome=done")
        assert visitor.page.text.count("data-row") == 50
        following = ways(visitor)["Next page"]
        assert following == f"{path}?outcome=done&cursor=50"
        await visitor.look(following)
        assert visitor.page.text.count("data-row") == 2
        for query, told in (("outcome=odd", "Outcome must be one of"), ("cursor=x", "Cursor must be the next_cursor")):
            assert told in await visitor.look(f"{path}?{query}")
            assert visitor.page.status_code == 422
        await visitor.look("/bulk-actions/0198c8a0-0000-7000-8000-000000000001")
        assert visitor.page.status_code == 404


async def test_viewer_sees_the_action_and_the_role_needed_to_act(quick: Front) -> None:
    await park_many(quick, 2)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/bulk-actions/new?verb=retry")
        await submit(visitor, reason="mended")
        path = visitor.page.url.path
    async with visiting(quick, "viewer") as visitor:
        for address in ("/notifications?status=parked", "/parked-groups", path):
            text = await visitor.look(address)
            assert visitor.page.status_code == 200
            assert "your role is viewer" in text
            assert "/bulk-actions/new" not in visitor.page.text
        await visitor.look("/bulk-actions/new?verb=retry")
        assert visitor.page.status_code == 403
        assert "This needs the role operator" in visitor.text


@pytest.mark.bad_input(55)
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("verb=delete", "Verb must be retry or discard, not 'delete'."),
        ("verb=retry&status=delivered", "Bulk actions cover only parked notifications."),
        ("verb=retry&chosen=me.1", "Notification_id must be a UUID"),
        ("verb=retry&chosen=0198c8a0-0000-7000-8000-000000000001", "ID.VERSION"),
        ("verb=retry&site=elsewhere", "No parked notification matches"),
    ],
)
async def test_invalid_query_is_answered_with_a_precise_error(quick: Front, query: str, told: str) -> None:
    async with visiting(quick, "operator") as visitor:
        assert told in await visitor.look(f"/bulk-actions/new?{query}")
        assert "<button" not in visitor.page.text.partition('id="confirm"')[2].partition("</section>")[0]


async def test_empty_pages_explain_themselves(quick: Front) -> None:
    async with visiting(quick, "viewer") as visitor:
        assert "fieldpost notifications groups" in await visitor.look("/parked-groups")
        assert "No bulk actions yet" in await visitor.look("/bulk-actions")
