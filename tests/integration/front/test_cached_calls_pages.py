"""The pages of the sites' cached calls, and of what was asked of sites."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fieldpost.core.sites.intent import IntentKind, IntentState
from fieldpost.core.times import to_text
from fieldpost.link.messages import CommandResult, Health
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front, open_front
from support.visitor import visiting


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


@pytest.fixture
def calls(tmp_path: Path, clock: ManualClock) -> Iterator[Calls]:
    opened = Calls(tmp_path / "buffer.db", clock)
    yield opened
    opened.close()


async def tell(front: Front, calls: Calls, site: str = SITE) -> None:
    """The site tells of all its calls, and that it is there."""
    await front.centre.ingest.mirrors.telemetry(site, calls.told())
    await front.centre.ingest.health.keep(site, Health(sent_at=to_text(front.clock.now()), version="1", backlog={}))


async def test_calls_are_found_by_status_target_and_how_long_they_take(
    front: Front, calls: Calls, clock: ManualClock
) -> None:
    parked, slow = calls.parked(), calls.issue("mes")
    await tell(front, calls)
    clock.advance(3600)
    fresh = calls.issue("erp")
    await tell(front, calls)

    async def found(path: str) -> set[str]:
        await visitor.look(path)
        return {one for one in (parked, slow, fresh) if f'id="r-{one}"' in visitor.page.text}

    async with visiting(front, "viewer") as visitor:
        assert await found("/cached-calls") == {parked, slow, fresh}
        assert "503 for too long" in visitor.text
        assert await found("/cached-calls?status=parked") == {parked}
        assert await found("/cached-calls?stuck=true") == {slow}
        assert await found("/cached-calls?target=MES") == {slow}
        assert await found(f"/cached-calls?site={SITE}&from=2000-01-01T00:00&zone=Europe/Amsterdam&category=") == {
            parked,
            slow,
            fresh,
        }
        assert await found("/cached-calls?site=elsewhere") == set()
        wrong = await visitor.look("/cached-calls?from=tomorrow&status=parked")
        assert "From must be a date and a time" in wrong
        assert visitor.page.status_code == 422
        assert 'value="parked" selected' in visitor.page.text, "what could be read stays"
        for name in ("status", "category"):
            await visitor.look(f"/cached-calls?{name}=purple")
            assert f'aria-describedby="e-{name}"' in visitor.page.text, "One of the filters is invalid"
            assert re.search(rf'id="e-{name}">[^<]+purple', visitor.page.text)


@pytest.mark.req("TEL-11")
@pytest.mark.req("DEC-27")
async def test_retry_waits_and_is_shown_and_only_the_site_changes_the_mirror(
    front: Front, calls: Calls, clock: ManualClock
) -> None:
    one = calls.parked()
    await tell(front, calls)
    clock.advance(300)
    before = (await front.watch.cached_calls.detail(SITE, one)).call
    async with visiting(front, "operator") as visitor:
        asked = await visitor.look(f"/cached-calls/confirm?verb=retry&call={one}%20{SITE}")
        assert "The request is queued" in asked, "the site has not reported for five minutes"
        assert (await visitor.send("/cached-calls/request", reason="erp is back")).status_code == 303
        assert "Retry requested" in visitor.text
        assert "waiting for the site" in visitor.text
        assert "parked" in visitor.text
        assert f"verb=discard&amp;call={one}" not in visitor.page.text, "one word at a time"
        assert (await front.watch.cached_calls.detail(SITE, one)).call == before
        (intent,) = await front.commands.intents.of([SITE], 10)
        assert (intent.kind, intent.message_id, intent.reason, intent.actor) == (
            IntentKind.RETRY,
            one,
            "erp is back",
            "operator",
        )
        await front.commands.intents.to_send([intent])
        assert "sent" in await visitor.look(f"/cached-calls/{one}")
        assert f'action="/sites/{SITE}/events"' in visitor.page.text, "its attempts stand in the site's own log"
        assert f'action="/intents/{intent.intent_id}/cancel"' not in visitor.page.text, "what was sent is sent"
        await front.commands.intents.settle(SITE, CommandResult(intent.intent_id, "applied"))
        told = await visitor.look(f"/cached-calls/{one}", site=SITE)
        assert "Retry: applied by the site" in told
        assert (await front.watch.cached_calls.detail(None, one)).call == before
        calls.retry(one)
        await tell(front, calls)
        assert "Retrying, as last reported by the site" in await visitor.look(f"/cached-calls/{one}")


async def test_several_calls_are_discarded_with_one_intent_each(quick: Front, calls: Calls) -> None:
    await quick.operate.sites.add(ADMIN, "other")
    marked = [calls.parked(), calls.parked()]
    moved = calls.issue()
    await tell(quick, calls)
    await quick.centre.ingest.mirrors.telemetry("other", calls.told())
    chosen = [f"{marked[0]} {SITE}", f"{marked[1]} {SITE}", f"{marked[0]} other", f"{moved} other"]
    async with visiting(quick, "operator") as visitor:
        visitor.page = await visitor.client.get("/cached-calls/confirm", params={"verb": "discard", "call": chosen})
        assert "Discard 4 calls?" in visitor.text
        assert "1 of the calls is no longer parked" in visitor.text
        await visitor.send("/cached-calls/request")
        found = await quick.commands.intents.of([SITE, "other"], 10)
        assert {(i.site, i.message_id, i.kind.value) for i in found} == {
            (SITE, marked[0], "discard"),
            (SITE, marked[1], "discard"),
            ("other", marked[0], "discard"),
            ("other", moved, "discard"),
        }
        chosen = [f"{marked[0]} {SITE}", f"{marked[0]} gone"]
        visitor.page = await visitor.client.get("/cached-calls/confirm", params={"verb": "retry", "call": chosen})
        assert (await visitor.send("/cached-calls/request")).status_code == 404
        assert await quick.commands.intents.of([SITE, "other"], 10) == found, "for all of them, or for none"
        assert "No calls selected" in await visitor.look("/cached-calls/confirm?verb=discard")
        for wrong in ("?verb=burn&call=x", "?verb=retry&call=x", f"?verb=retry&call={marked[0]}"):
            await visitor.look(f"/cached-calls/confirm{wrong}")
            assert visitor.page.status_code == 422


@pytest.mark.req("TEL-06")
async def test_site_is_asked_for_parked_calls_and_its_answer_is_readable(quick: Front, calls: Calls) -> None:
    calls.parked()
    await tell(quick, calls)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/cached-calls", site=SITE)
        await visitor.client.post(
            "/cached-calls/parked", data={"csrf": csrf_in(visitor.page.text), "site": SITE, "next": "/cached-calls"}
        )
        (intent,) = await quick.commands.intents.of([SITE], 10)
        assert "The request is about to be sent" in await visitor.look(f"/intents/{intent.intent_id}")
        await quick.commands.intents.to_send([intent])
        rows = ({"call_id": calls.parked(), "target": "erp <POST>", "created_at": "2026-11-15T01:02:03Z"},)
        await quick.commands.intents.settle(SITE, CommandResult(intent.intent_id, "applied", None, rows, "17"))
        answer = await visitor.look(f"/intents/{intent.intent_id}")
        for words in ("erp <POST>", "Created at", "1 row, as", "--cursor 17"):
            assert words in answer
        assert f'href="/cached-calls/{rows[0]["call_id"]}?site={SITE}"' in visitor.page.text


async def test_open_intents_come_first_by_site_and_can_be_cancelled_while_they_wait(quick: Front) -> None:
    ended = (await quick.operate.intents.create(OPERATOR, SITE, IntentKind.RECONCILE))[0]
    await quick.commands.intents.to_send([ended])
    await quick.commands.intents.settle(SITE, CommandResult(ended.intent_id, "operation_failed", "disk <full>"))
    opened = (await quick.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_REJECTED, reason="why"))[0]
    async with visiting(quick, "operator") as visitor:
        text = await visitor.look("/intents")
        assert text.index("List the rejected box") < text.index("Closed") < text.index("disk <full>")
        assert "failed" in text
        await visitor.send(f"/intents/{opened.intent_id}/cancel")
        assert "Request cancelled" in visitor.text
        assert (await quick.watch.cached_calls.intent(opened.intent_id)).state is IntentState.CANCELLED
        late = await visitor.client.post(
            f"/intents/{opened.intent_id}/cancel", data={"csrf": csrf_in(visitor.page.text)}
        )
        assert late.status_code == 409
        assert "No matching requests" in await visitor.look("/intents?site=elsewhere")
        assert "disk <full>" in await visitor.look("/intents?state=done")
        assert "List the rejected box" not in visitor.text
        assert (await visitor.client.get("/intents?state=purple")).status_code == 422


async def test_viewer_sees_calls_and_the_role_needed_to_act(quick: Front, calls: Calls) -> None:
    one = calls.parked()
    await tell(quick, calls)
    async with visiting(quick, "viewer") as visitor:
        assert "requires the role operator" in await visitor.look(f"/cached-calls/{one}")
        page = await visitor.look("/cached-calls")
        assert "You need the role operator to retry or discard calls; your role is viewer" in page
        assert "data-select" not in visitor.page.text
        form = {"csrf": csrf_in(visitor.page.text), "verb": "retry", "calls": f"{one} {SITE}"}
        assert (await visitor.client.post("/cached-calls/request", data=form)).status_code == 403
        assert await quick.commands.intents.of([SITE], 10) == []
        assert (await visitor.client.get(f"/cached-calls/{one}?site=elsewhere")).status_code == 404


async def test_operator_requests_a_new_reading_of_the_calls_of_a_site(quick: Front, calls: Calls) -> None:
    calls.parked()
    await tell(quick, calls)
    async with visiting(quick, "operator") as visitor:
        await visitor.look("/cached-calls", site=SITE)
        await visitor.send("/cached-calls/reconcile")
        assert "Reconciliation requested" in visitor.text
        (intent,) = await quick.commands.intents.of([SITE], 10)
        assert intent.kind is IntentKind.RECONCILE


def csrf_in(text: str) -> str:
    return text.split('name="csrf" value="', 1)[1].split('"', 1)[0]
