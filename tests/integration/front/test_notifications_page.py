"""The notifications page: figures, filters in the address, what is wrong with them, and the list that they make."""

import html
import re
from collections.abc import AsyncIterator, Sequence

import pytest

from fieldpost.core.search.filters import (
    AUDIT_FILTERS,
    CALL_FILTERS,
    EVENT_FILTERS,
    INTENT_FILTERS,
    NOTIFICATION_FILTERS,
    SITE_FILTERS,
    SUBSCRIPTION_FILTERS,
    FilterField,
)
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.visitor import Visitor, visiting

NO_USER = "550 5.1.1 no such user"
GROUP = f"<address>: {NO_USER}"
ERROR_KEY = fingerprint_key(f"ops@example.org: {NO_USER}")


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


def subjects(visitor: Visitor) -> list[str]:
    """Of the rows, in order."""
    found = re.findall(r'<a class="open" href="[^"]*" title="[^"]*"><bdi>([^<]*)</bdi>', visitor.page.text)
    return [html.unescape(subject) for subject in found]


def links(visitor: Visitor) -> dict[str, str]:
    """Where the page's links lead, by what they say."""
    found = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', visitor.page.text, re.S)
    return {" ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split()): html.unescape(path) for path, text in found}


@pytest.mark.req("KPI-10")
async def test_the_page_has_the_figures_and_the_list(quick: Front) -> None:
    await quick.deliver(subject="Delivered one")
    await quick.park(subject="Parked one")
    await quick.centre.send("ops", subject="Old one")
    quick.clock.advance(700)
    async with visiting(quick, "viewer") as visitor:
        text = await visitor.look("/notifications")
        tiles = visitor.page.text.partition('aria-label="Headline figures">')[2].partition("</ul>")[0]
    said = " ".join(re.sub(r"<[^>]*>", " ", tiles).split())
    assert said == (
        "queue depth 1 pending or retrying oldest pending 11 min since it arrived overdue 1 longer than 20 s"
        " stuck 1 longer than 10 min parked 1 waiting for an operator delivered 0 in the last minute"
    )
    assert subjects(visitor) == ["Old one", "Parked one", "Delivered one"]
    assert "your role is viewer" in text


@pytest.mark.req("KPI-11", "KPI-12")
async def test_every_filter_narrows_the_list_and_is_part_of_the_links(quick: Front) -> None:
    await quick.park(NO_USER, subject="Pump 3 is hot")
    await quick.deliver(subject="Pump 4 is well")
    begin = quick.clock.now()
    quick.clock.advance(3600)
    await quick.centre.send("nobody", subject="Tank is low")
    quick.clock.advance(700)
    asked = {
        "status=parked": ["Pump 3 is hot"],
        "status=parked,delivered": ["Pump 4 is well", "Pump 3 is hot"],
        "status=parked&status=delivered": ["Pump 4 is well", "Pump 3 is hot"],
        "type=email": ["Pump 4 is well", "Pump 3 is hot"],
        "type=unresolved": ["Tank is low"],
        "type=teams": [],
        "site=plant-7&list=nobody": ["Tank is low"],
        "site=elsewhere": [],
        "stuck=true": ["Tank is low"],
        "overdue=true": ["Tank is low"],
        "subject=pump+hot": ["Pump 3 is hot"],
        f"error={ERROR_KEY}": ["Pump 3 is hot"],
        "last=hour": ["Tank is low"],
        "last=week": ["Tank is low", "Pump 4 is well", "Pump 3 is hot"],
        f"from={begin:%Y-%m-%dT%H:%M}": ["Tank is low", "Pump 4 is well", "Pump 3 is hot"],
        f"to={begin:%Y-%m-%dT%H:%M:%S}": ["Pump 4 is well", "Pump 3 is hot"],
        f"to={begin:%Y-%m-%dT%H:%M:%S}&zone=Asia/Tokyo": [],
    }
    async with visiting(quick, "viewer") as visitor:
        for query, found in asked.items():
            await visitor.look(f"/notifications?{query}")
            assert (query, subjects(visitor)) == (query, found)
        await visitor.look("/notifications?site=plant-7&subject=pump&last=day")
        parked = links(visitor)["parked"]
        assert parked == "/notifications?status=parked&site=plant-7&subject=pump&last=day"
        await visitor.look(parked)
        assert subjects(visitor) == ["Pump 3 is hot"]
        one = links(visitor)["Pump 3 is hot"]
        await visitor.look(one)
        assert links(visitor)["Notifications, filtered"] == parked


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("status=parked", "parked"),
        ("status=pending,retrying", "pending or retrying"),
        ("status=pending,retrying,parked,discarded", "not delivered"),
        ("status=parked,delivered", "parked or delivered"),
    ],
)
async def test_form_shows_the_statuses_of_the_address(quick: Front, query: str, chosen: str) -> None:
    async with visiting(quick, "viewer") as visitor:
        await visitor.look(f"/notifications?{query}")
        form = visitor.page.text.partition('<select name="status"')[2].partition("</select>")[0]
    assert re.findall(r"selected>([^<]*)</option>", form) == [chosen]


async def test_counts_are_shown_only_if_they_describe_the_list(quick: Front) -> None:
    await quick.park()
    async with visiting(quick, "viewer") as visitor:
        await visitor.look("/notifications")
        assert "parked 1" in links(visitor)
        await visitor.look("/notifications?site=elsewhere")
        assert "parked" in links(visitor)


@pytest.mark.bad_input(55)
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("status=nonsense", "Status must be one of pending, retrying, delivered, parked, discarded, not 'nonsense'."),
        ("from=tomorrow", "From must be a date and a time, not 'tomorrow'. Write it as 2026-11-15T08:00."),
        ("from=2026-11-16T00:00&to=2026-11-15T00:00", "From must not be later than to."),
        ("from=2026-11-15T00:00&zone=Atlantis", "Unknown time zone 'Atlantis'. Leave it out for UTC."),
        ("subject=---", "Subject must contain 1 to 16 words, got 0."),
        ("stuck=perhaps", "Stuck must be true or false, not 'perhaps'."),
        ("overdue=perhaps", "Overdue must be true or false, not 'perhaps'."),
        ("error=zz", "Error must be the key of an error group. List the groups."),
        ("last=year", "Last must be one of hour, day, week, not 'year'."),
        (f"site={'x' * 300}", "Site must be at most 256 bytes of UTF-8, got 300."),
        ("cursor=AAAA", "Cursor must be the next_cursor of a page. Omit it for the first page."),
    ],
)
async def test_invalid_filter_is_reported_at_its_field_and_the_rest_is_kept(
    quick: Front, query: str, told: str
) -> None:
    await quick.park(subject="Parked one")
    async with visiting(quick, "viewer") as visitor:
        text = await visitor.look(f"/notifications?{query}&list=ops")
        assert visitor.page.status_code == 422
        assert told in text
        assert 'name="list" type="text" value="ops"' in visitor.page.text
        assert subjects(visitor) == [], "a list that nobody asked for would be taken for the one that was"
        assert "No matching notifications" not in text
        way_on = links(visitor)["Go to the newest" if "cursor" in query else "Remove the invalid filter"]
        await visitor.look(way_on)
        assert (visitor.page.status_code, subjects(visitor)) == (200, ["Parked one"])
        assert "list=ops" in way_on


@pytest.mark.bad_input(56)
async def test_hostile_text_in_a_row_is_escaped_isolated_and_truncated(quick: Front) -> None:
    evil = "<script>alert(1)</script> \u202egnp.exe javascript:alert(1)"
    parked = await quick.park("x" * 1900 + "<script>", subject=evil, body="b" * 60_000)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/notifications")
        assert subjects(visitor) == [evil]
        assert "<script>alert" not in visitor.page.text
        row = visitor.page.text.partition("<tbody>")[2].partition("</tbody>")[0]
        [error] = re.findall(r'class="c-error"[^>]*><bdi>([^<]*)</bdi>', row)
        assert len(error) == 200
        await visitor.look(f"/notifications/{parked}")
        assert "<script>alert" not in visitor.page.text
        assert "show all" in visitor.text
        assert "Show the rest: 40 000 characters" in visitor.text
        assert visitor.page.text.count("b" * 20_000) == 3


async def test_notification_links_back_to_its_page_of_the_list(quick: Front) -> None:
    for number in range(52):
        await quick.centre.send("ops", subject=f"Number {number}")
        quick.clock.advance(1)
    async with visiting(quick, "viewer") as visitor:
        await visitor.look("/notifications?list=ops")
        older = links(visitor)["Older"]
        assert older.startswith("/notifications?list=ops&cursor=")
        await visitor.look(older)
        assert links(visitor)["Newest"] == "/notifications?list=ops"
        await visitor.look(links(visitor)["Number 0"])
        assert links(visitor)["Notifications, filtered"] == older


async def test_list_of_parked_notifications_shows_the_most_frequent_errors(quick: Front) -> None:
    for _ in range(2):
        await quick.park(NO_USER)
    async with visiting(quick, "operator") as visitor:
        text = await visitor.look("/notifications?status=parked")
        assert f"2 {GROUP}" in text
        await visitor.look(links(visitor)[GROUP])
        assert len(subjects(visitor)) == 2
        assert f"Error group, for example: ops@example.org: {NO_USER}" in visitor.text


async def test_known_sites_and_lists_are_offered_on_both_stores_but_not_sent_again_with_updates(front: Front) -> None:
    await front.park()
    async with visiting(front, "viewer") as visitor:
        await visitor.look("/notifications")
        assert '<datalist id="sites"><option value="plant-7"></datalist>' in visitor.page.text
        assert '<datalist id="lists"><option value="ops"></datalist>' in visitor.page.text
        update = await visitor.client.get("/notifications", headers={"hx-request": "true"})
    assert "<option value=" not in update.text.partition("<datalist")[2].partition("</form>")[0]


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("/notifications", NOTIFICATION_FILTERS),
        ("/cached-calls", CALL_FILTERS),
        ("/audit", AUDIT_FILTERS),
        ("/intents", INTENT_FILTERS),
        ("/events", EVENT_FILTERS),
        ("/subscriptions", SUBSCRIPTION_FILTERS),
        ("/sites", SITE_FILTERS),
    ],
)
async def test_a_form_has_an_input_for_every_declared_filter(
    quick: Front, path: str, declared: Sequence[FilterField]
) -> None:
    key = "0123456789ab"
    async with visiting(quick, "viewer") as visitor:
        text = (await visitor.client.get(path, params={"error": key} if path == "/notifications" else {})).text
    form = text.partition('<form class="filters"')[2].partition("</form>")[0]
    inputs = re.findall(r'<(?:input|select) name="([a-z_]+)"', form)
    assert sorted(inputs) == sorted(field.name for field in declared)
    for field in declared:
        for choice in field.choices:
            assert f'<option value="{choice}"' in form
