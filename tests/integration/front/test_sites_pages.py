"""The pages of sites: the list, one site, what is asked of it, and by what it comes in."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.operate.sites import Claimant
from fieldpost.central.store.sites import health, sites
from fieldpost.core.sites.health import Freshness, SiteHealth, SiteReport
from fieldpost.core.sites.intent import IntentKind, IntentState
from fieldpost.core.sites.node import SiteNode
from fieldpost.core.times import to_text
from fieldpost.link.messages import CommandCell, CommandResult, Health
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front, open_front
from support.visitor import visiting

ID = "019a8b3c-0000-7000-8000-00000000000{}"


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def test_list_has_issues_first_and_shows_the_report_of_each_site(quick: Front) -> None:
    for name in ("quiet", "away", "failing"):
        await quick.operate.sites.add(ADMIN, name)
    await report(quick, "away", backlog={"notification": 57}, version="1.2.3", disk_free_bytes=41_000_000_000)
    quick.clock.advance(600)
    await report(quick, "quiet")
    await report(quick, "failing", is_forwarding=False, forward_error="429", parked=2, rejected=1)
    async with logged_in(quick, "viewer") as client:
        text = (await client.get("/sites")).text
        assert names_in(text) == ["away", "failing", "quiet", SITE]
        for words in ("57", "1.2.3", "41.0 GB", "cannot forward", "not enrolled yet"):
            assert words in text
        assert 'href="/sites/failing/rejected"' in text
        assert 'href="/cached-calls?status=parked&amp;site=failing"' in text
        assert names_in((await client.get("/sites?state=offline")).text) == ["away"]
        assert names_in((await client.get("/sites?state=issues&name=FAIL")).text) == ["failing"]
        nothing = (await client.get("/sites?name=unheard-of")).text
        assert "No matching sites" in nothing
        unknown = await client.get("/sites?state=purple")
    assert (unknown.status_code, "State must be one of" in unknown.text) == (422, True)


async def test_thousand_sites_are_paged_by_the_hundred_with_the_worst_first(quick: Front) -> None:
    now = quick.clock.now()

    def fill(conn: Any) -> None:
        for number in range(1000):
            sites.add(conn, f"s{number:04}", now)
        health.keep(
            conn,
            [
                SiteHealth(
                    site=f"s{number:04}",
                    received_at=now - (timedelta(hours=1) if number == 777 else timedelta(0)),
                    report=SiteReport(),
                    clock_offset_s=0.0,
                )
                for number in range(1000)
            ],
        )

    await quick.centre.store.write(fill)
    async with logged_in(quick, "viewer") as client:
        first = await client.get("/sites")
        last = await client.get("/sites?page=11")
    found = names_in(first.text)
    assert (len(found), found[:2]) == (100, ["s0777", "s0000"])
    assert 'rel="next" href="/sites?page=2"' in first.text
    assert names_in(last.text) == [SITE]


async def test_page_of_a_site_shows_its_state_and_history(front: Front, clock: ManualClock) -> None:
    store = front.centre.store
    for depth in (5, 0, 12):
        await report(front, SITE, backlog={"notification": depth}, parked=1)
        at = clock.now().replace(second=0, microsecond=0)
        await store.write(health.sample, at, Freshness(), now=clock.now())
        clock.advance(20 * 60)
    await report(front, SITE, backlog={"notification": 12}, parked=1, version="1.2.3", uptime_s=90.0)
    async with logged_in(front, "viewer") as client:
        page = await client.get(f"/sites/{SITE}?span=hour")
        assert page.status_code == 200
        (line,) = re.findall(r'class="line " d="([^"]*)"', page.text)
        assert line.count("V") == 2, "each step of the backlog is drawn"
        for words in ("1.2.3</bdi>, running for 1 min", "Waiting at the site, last hour", "longer than 10 min"):
            assert words in page.text
        assert f'href="/cached-calls?status=parked&amp;site={SITE}"' in page.text
        assert f'href="/notifications?site={SITE}&amp;status=parked"' in page.text
        clock.advance(3600)
        away = (await client.get(f"/sites/{SITE}")).text
        missing = await client.get("/sites/nowhere")
    assert "No report for 1 h" in away
    assert missing.status_code == 404


async def test_a_site_added_minutes_ago_is_online_since_its_first_report(quick: Front) -> None:
    clock, store = quick.clock, quick.centre.store
    await report(quick, SITE)
    first_at = clock.now()
    await store.write(health.sample, first_at, Freshness(), now=first_at)
    clock.advance(30)
    await report(quick, SITE)
    async with logged_in(quick, "viewer") as client:
        text = (await client.get(f"/sites/{SITE}")).text
    assert "for more than a" not in text
    assert f'since <time datetime="{to_text(first_at)}"' in text


async def test_unknown_backlog_is_shown_as_unknown_and_a_correct_clock_without_a_sign(quick: Front) -> None:
    await quick.operate.sites.add(ADMIN, "new")
    async with logged_in(quick, "viewer") as client:
        for path in ("/", "/sites"):
            assert ">unknown</td>" in (await client.get(path)).text, path
        await report(quick, SITE)
        text = (await client.get(f"/sites/{SITE}")).text
    assert "<dt>Clock</dt><dd>0.0 s relative to central" in text


async def test_the_menu_has_its_badges_on_a_rejected_form_too(quick: Front) -> None:
    await quick.park()
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/sites")
        answer = await visitor.send("/sites", name="..")
    assert (answer.status_code, '<b class="count">1<span class="hidden"> parked' in answer.text) == (422, True)


async def test_site_name_may_contain_a_slash_and_special_characters(quick: Front) -> None:
    name = "plant/7 & <north>?"
    await quick.operate.sites.add(ADMIN, name)
    async with logged_in(quick, "admin") as client:
        listed = (await client.get("/sites")).text
        path = re.search(r'href="(/sites/plant/7[^"]*)"', listed)
        assert path
        page = await client.get(path[1])
        revoke = await client.get(f"{path[1]}/revoke")
    assert (page.status_code, revoke.status_code) == (200, 200)
    assert "plant/7 &amp; &lt;north&gt;?" in page.text
    assert "<north>" not in page.text


async def test_a_site_is_added_by_one_command_that_is_shown_once(quick: Front) -> None:
    async with logged_in(quick, "admin") as client:
        page = await client.get("/sites")
        form = {"csrf": token_in(page), "name": "north", "valid_h": "24", "central": "https://fieldpost.example.org/"}
        shown = await client.post("/sites", data=form)
        assert shown.status_code == 200
        command = re.search(
            r"<code>fieldpost site join (fp_join_\w+)@https://fieldpost.example.org --folder ./north</code>", shown.text
        )
        assert command, shown.text
        waiting = (await client.get("/sites/north")).text
        assert command[1] not in waiting
        assert "Not enrolled yet." in waiting
        assert "not enrolled yet" in waiting
        claimant = Claimant("abcdefghijkl", bytes(32))
        assert await quick.operate.sites.join(command[1], claimant) == SiteNode("north")
        joined = (await client.get("/sites/north")).text
        assert "fp_site_abcdefghijkl_…" in joined
        assert ("no report yet" in joined, "not enrolled yet" in joined) == (True, False)
        again = await client.post("/sites", data=form)
        assert (again.status_code, "already exists" in again.text) == (409, True)
        assert 'value="north"' in again.text, "what was typed stays"
        empty = await client.post("/sites", data=form | {"name": " "})
        assert (empty.status_code, "Name must not be empty" in empty.text) == (422, True)
        where = await client.post("/sites", data=form | {"name": "other", "central": "javascript:alert(1)"})
        assert (where.status_code, "central must be a url" in where.text.lower()) == (422, True)
        token = await client.post("/sites", data=form | {"name": "by-program", "by": "token"})
    assert re.search(r"fp_site_\w+", token.text)
    assert "fieldpost site init ./by-program --name by-program" in token.text


async def test_expired_code_is_shown_as_such(quick: Front) -> None:
    await quick.operate.sites.invite(ADMIN, "north")
    quick.clock.advance(3601)
    async with logged_in(quick, "viewer") as client:
        text = (await client.get("/sites/north")).text
    assert "its code has expired" in text
    assert "An administrator can create a new one" in text


async def test_a_token_is_rotated_with_an_overlap_and_shown_once(quick: Front) -> None:
    async with logged_in(quick, "admin") as client:
        asked = await client.get(f"/sites/{SITE}/rotate")
        assert "for 1 day" in asked.text
        form = {"csrf": token_in(asked), "by": "token", "overlap_h": "1"}
        shown = await client.post(f"/sites/{SITE}/rotate", data=form)
        assert re.search(r"<code>fp_site_\w+</code>", shown.text)
        page = (await client.get(f"/sites/{SITE}")).text
        refused = await client.post(f"/sites/{SITE}/rotate", data=form | {"overlap_h": "2"})
    assert page.count("valid</span>") == 2
    assert "until <time" in page
    assert refused.status_code == 422
    tokens = (await quick.watch.sites.access(SITE)).tokens
    assert {token.expires_at for token in tokens} == {None, quick.clock.now() + timedelta(hours=1)}


async def test_site_is_revoked_after_a_confirmation_that_explains_it(quick: Front) -> None:
    async with logged_in(quick, "admin") as client:
        asked = await client.get(f"/sites/{SITE}/revoke")
        assert "Central rejects everything from this site" in asked.text
        assert (await quick.watch.sites.one(SITE))[0].record.revoked_at is None, "asking does nothing"
        done = await client.post(f"/sites/{SITE}/revoke", data={"csrf": token_in(asked)})
        assert done.status_code == 303
        page = (await client.get(done.headers["location"])).text
        assert "Site revoked: central rejects everything it sends" in page
        again = await client.get(f"/sites/{SITE}/revoke")
    assert "The site is already revoked" in again.text
    assert (await quick.watch.sites.one(SITE))[0].record.revoked_at is not None


async def test_user_without_the_role_sees_the_required_role(quick: Front) -> None:
    async with logged_in(quick, "viewer") as client:
        listed = await client.get("/sites")
        assert "requires the role admin; your role is viewer" in listed.text
        assert 'action="/sites"' not in listed.text.replace('<form class="filters" method="get" action="/sites"', "")
        page = (await client.get(f"/sites/{SITE}")).text
        assert "requires the role admin; your role is viewer" in page
        assert "/revoke" not in page
        for path in ("rejected", "events"):
            look = await client.get(f"/sites/{SITE}/{path}")
            assert "requires the role operator; your role is viewer" in look.text
            refused = await client.post(f"/sites/{SITE}/{path}", data={"csrf": token_in(look)})
            assert refused.status_code == 403
        for path in ("rotate", "revoke"):
            assert (await client.get(f"/sites/{SITE}/{path}")).status_code == 403
    async with logged_in(quick, "operator") as client:
        form = {"csrf": token_in(await client.get("/sites")), "name": "mine"}
        assert (await client.post("/sites", data=form)).status_code == 403


async def test_query_for_rejected_notifications_waits_for_the_site_and_allows_actions(front: Front) -> None:
    box = f"/sites/{SITE}/rejected"
    async with logged_in(front, "operator") as client:
        empty = await client.get(box)
        assert "Not queried yet" in empty.text
        asked = await client.post(box, data={"csrf": token_in(empty)})
        assert asked.status_code == 303
        waiting = (await client.get(asked.headers["location"])).text
        assert "The request stays queued until" in waiting, "the site is away, and the page says so"
        look = await front.watch.sites.newest_query(SITE, IntentKind.LIST_REJECTED)
        assert look is not None
        assert look.state is IntentState.WAITING
        assert f"/intents/{look.intent_id}/cancel" in waiting
        await answer(front, look.intent_id, [box_row(1, "Boiler 1"), box_row(2, "<b>Boiler 2</b>")], "17.x")
        text = (await client.get(box)).text
        assert "Boiler 1" in text
        assert "&lt;b&gt;Boiler 2&lt;/b&gt;" in text
        assert 'name="cursor" value="17.x"' in text, "the site has more, and can be asked to go on"
        ids = [("id", ID.format(1)), ("id", ID.format(2)), ("id", "no id")]
        question = await client.get(f"{box}/confirm", params=[("verb", "discard"), *ids])
        assert "Discard 2 notifications?" in question.text
        assert "is offline" in question.text
        hidden = re.search(r'name="ids" value="([^"]*)"', question.text)
        assert hidden
        form = {"csrf": token_in(question), "verb": "discard", "ids": hidden[1], "reason": "sent by hand"}
        done = await client.post(f"{box}/decide", data=form)
        assert (done.status_code, done.headers["location"]) == (303, f"{box}?done=discard")
        after = (await client.get(done.headers["location"])).text
        assert after.count("waiting for the site") == 2
        assert 'name="id"' not in after, "what is asked for already is not asked for twice"
        none = await client.get(f"{box}/confirm?verb=resubmit")
        assert "No notifications selected" in none.text
        assert (await client.get(f"{box}/confirm?verb=burn")).status_code == 422
    about = await front.watch.sites.asked_about(SITE, [ID.format(1), ID.format(3)])
    assert {key: (one.kind, one.reason) for key, one in about.items()} == {
        ID.format(1): (IntentKind.DISCARD_REJECTED, "sent by hand")
    }
    assert await front.watch.sites.asked_about("elsewhere", [ID.format(1)]) == {}


async def test_event_log_is_queried_with_filters_in_the_time_zone_of_the_user(quick: Front) -> None:
    log = f"/sites/{SITE}/events"
    async with logged_in(quick, "operator") as client:
        page = await client.get(log)
        form = {"csrf": token_in(page), "severity": "error", "kind": "", "zone": "Europe/Amsterdam"}
        wrong = await client.post(log, data=form | {"from": "yesterday", "kind": "parked"})
        assert (wrong.status_code, "must be a date and a time" in wrong.text) == (422, True)
        assert 'value="parked"' in wrong.text
        asked = await client.post(log, data=form | {"from": "2026-11-15T08:00"})
        look = await quick.watch.sites.newest_query(SITE, IntentKind.QUERY_EVENTS)
        assert look is not None
        assert dict(look.arguments) == {"severity": "error", "from": "2026-11-15T07:00:00.000000Z", "limit": 100}
        assert asked.headers["location"] == f"{log}?intent={look.intent_id}"
        told = {"occurred_at": to_text(quick.clock.now()), "severity": "error", "kind": "parked", "text": "no <luck>"}
        await answer(quick, look.intent_id, [told])
        text = (await client.get(asked.headers["location"])).text
        assert "no &lt;luck&gt;" in text
        foreign = await client.get(f"/sites/{SITE}/rejected?intent={look.intent_id}")
    assert foreign.status_code == 404, "another question's answer is not this page's"


async def test_intents_of_a_site_are_listed_and_can_be_cancelled_there(quick: Front) -> None:
    (given,) = await quick.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_PARKED)
    async with logged_in(quick, "operator") as client:
        page = await client.get(f"/sites/{SITE}")
        assert f'href="/intents/{given.intent_id}"' in page.text
        form = {"csrf": token_in(page), "next": f"/sites/{SITE}"}
        done = await client.post(f"/intents/{given.intent_id}/cancel", data=form)
        assert done.headers["location"] == f"/sites/{SITE}?done=cancelled"
        assert "Request cancelled" in (await client.get(done.headers["location"])).text


async def test_new_central_explains_how_to_add_the_first_site(sqlite_url: str, clock: ManualClock) -> None:
    async with open_front(sqlite_url, clock) as front:
        await front.centre.store.write(lambda conn: conn.exec_driver_sql("delete from sites"))
        async with logged_in(front, "viewer") as client:
            text = (await client.get("/sites")).text
    assert "No sites yet" in text
    assert "fieldpost sites add NAME" in text


async def report(front: Front, name: str, **more: Any) -> None:
    given = {"sent_at": to_text(front.clock.now()), "version": "1.0", "backlog": {}} | more
    await front.centre.ingest.health.keep(name, Health(**given))


async def answer(
    front: Front, intent_id: str, rows: list[dict[str, CommandCell]], next_: str | None = None, outcome: str = "applied"
) -> None:
    """What the site says once it is there."""
    intent = await front.watch.cached_calls.intent(intent_id)
    await front.commands.intents.to_send([intent])
    await front.commands.intents.settle(SITE, CommandResult(intent_id, outcome, None, tuple(rows), next_))


def box_row(number: int, subject: str) -> dict[str, CommandCell]:
    return {"notification_id": ID.format(number), "code": "submit.content", "error": "used before", "subject": subject}


@asynccontextmanager
async def logged_in(front: Front, name: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with front.client() as client:
        form: Mapping[str, str] = {"csrf": token_in(await client.get("/login")), "name": name}
        assert (await client.post("/login", data={**form, "password": front.password(name)})).status_code == 303
        yield client


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def names_in(text: str) -> list[str]:
    return re.findall(r'<a class="open" href="[^"]*"><bdi>([^<]*)</bdi></a>', text)


@pytest.mark.req("DEC-38")
async def test_a_node_is_added_by_one_command_and_removed(quick: Front) -> None:
    async with logged_in(quick, "admin") as client:
        assert "Add a node…" in (await client.get(f"/sites/{SITE}")).text
        asked = await client.get(f"/sites/{SITE}/add-node")
        form = {"csrf": token_in(asked), "by": "code", "valid_h": "1", "central": "https://fieldpost.example.org/"}
        wrong = await client.post(f"/sites/{SITE}/add-node", data=form | {"central": "x"})
        assert (wrong.status_code, "central must be a url" in wrong.text.lower()) == (422, True)
        shown = await client.post(f"/sites/{SITE}/add-node", data=form)
        command = re.search(r"<code>fieldpost site join (fp_join_\w+)@https://fieldpost.example.org", shown.text)
        assert command, shown.text
        assert await quick.operate.sites.join(command[1], Claimant("abcdefghijkl", bytes(32))) == SiteNode(SITE, 1)
        page = (await client.get(f"/sites/{SITE}")).text
        assert ("Add a node…" in page, "Remove node 0…" in page, "Remove node 1…" in page) == (False, True, True)
        third = await client.post(f"/sites/{SITE}/add-node", data=form)
        assert (third.status_code, "has two nodes already" in third.text) == (409, True)
        assert 'name="node"' in (await client.get(f"/sites/{SITE}/rotate")).text
        rotated = await client.post(f"/sites/{SITE}/rotate", data=form | {"by": "token", "node": "1"})
        assert re.search(r"<code>fp_site_\w+</code>", rotated.text)
        assert (await client.get(f"/sites/{SITE}/remove-node?node=x")).status_code == 422
        confirm = await client.get(f"/sites/{SITE}/remove-node?node=1")
        assert "Remove node 1 of" in confirm.text
        await client.post(f"/sites/{SITE}/remove-node", data={"csrf": form["csrf"], "node": "1"})
        assert "Add a node…" in (await client.get(f"/sites/{SITE}")).text
