"""One notification's page: why, where on its way, by which steps; what one can do, and what was done instead."""

import html
import re
from collections.abc import AsyncIterator

import pytest

from fieldpost.core.delivery.outcome import Held, PermanentFailure, TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.visitor import Visitor, visiting

NO_USER = "550 5.1.1 no such user"


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


def rail(visitor: Visitor) -> dict[str, str]:
    """How each stop of its way stands."""
    part = visitor.page.text.partition('<ol class="rail"')[2].partition("</ol>")[0]
    return {name: standing for standing, name in re.findall(r'<li class="([a-z]+)"[^>]*><b>([^<]*)</b>', part)}


async def test_page_starts_with_the_reason_and_times_that_the_browser_localizes(quick: Front) -> None:
    parked = await quick.park(NO_USER, subject="Pump 3 is hot")
    async with visiting(quick, "operator") as visitor:
        text = await visitor.look(f"/notifications/{parked}")
        why = visitor.page.text.partition('<div class="why parked">')[2].partition("</div>")[0]
    assert re.search(r'It was parked at </bdi><time datetime="[^"]*Z">[^<]*</time>', why)
    assert "It stays parked until an operator retries or discards it." in why
    assert text.index("It was parked at") < text.index("Timeline") < text.index("Audit, 3 entries")
    assert rail(visitor) == {"script": "done", "site": "done", "central": "done", "channel": "done", "inbox": "bad"}


async def test_stops_follow_the_notification_from_central_to_the_inbox(quick: Front) -> None:
    await quick.deliver()
    waiting = await quick.centre.send("ops")
    async with visiting(quick, "viewer") as visitor:
        await visitor.look(f"/notifications/{waiting}")
        assert (rail(visitor)["central"], rail(visitor)["inbox"]) == ("here", "ahead")
        quick.centre.adapter.answer("ops", Held("connection refused", phase="connect"))
        await quick.centre.deliver()
        await visitor.look(f"/notifications/{waiting}")
        assert (rail(visitor)["channel"], rail(visitor)["inbox"]) == ("wait", "ahead")
        assert 'href="/channels/mail">Open the channel' in visitor.page.text
        delivered = await quick.deliver()
        await visitor.look(f"/notifications/{delivered}")
        assert set(rail(visitor).values()) == {"done"}


@pytest.mark.req("DEC-15")
async def test_attempts_are_grouped_by_cycle_and_earlier_cycles_are_collapsed(quick: Front) -> None:
    parked = await quick.park(NO_USER)
    async with visiting(quick, "operator") as visitor:
        await visitor.look(f"/notifications/{parked}")
        await visitor.send(f"/notifications/{parked}/retry")
        assert "Retried: the notification is pending again" in visitor.text
        long = "452 4.3.1 " + "please wait " * 40
        quick.centre.adapter.answer("ops", TransientFailure("busy", phase="data", reply=long))
        await quick.centre.deliver()
        text = await visitor.look(f"/notifications/{parked}")
        timeline = visitor.page.text.partition('<ol class="timeline">')[2].partition("</section>")[0]
    past, _, present = timeline.partition("</details></li>")
    assert "Sent, and cycle 1: 1 attempt" in re.sub(r"<[^>]*>", "", past)
    assert NO_USER in past
    assert "Retried by operator" in present
    assert "phase <bdi>data</bdi>" in present
    assert '<details class="reply folded">' in present
    assert "2, in 2 cycles" in text


async def test_live_update_does_not_send_the_body_again(quick: Front) -> None:
    parked = await quick.park(body="It has 93 °C.")
    async with visiting(quick, "operator") as visitor:
        assert "It has 93 °C." in await visitor.look(f"/notifications/{parked}")
        update = await visitor.client.get(f"/notifications/{parked}", headers={"hx-request": "true"})
        assert 'id="body" data-kept' in update.text
        assert "It has 93 °C." not in update.text
    async with visiting(quick, "viewer") as visitor:
        text = await visitor.look(f"/notifications/{parked}")
        assert "It has 93 °C." not in text
        assert "You need the role operator to read the body; your role is viewer" in text


async def test_page_offers_commands_without_secrets(quick: Front) -> None:
    parked = await quick.park()
    version = (await quick.centre.get(parked)).version
    async with visiting(quick, "operator") as visitor:
        await visitor.look(f"/notifications/{parked}")
        copied = [html.unescape(text) for text in re.findall(r'data-copy="([^"]*)"', visitor.page.text)]
        cookie = visitor.client.cookies.get("fieldpost-session", domain="127.0.0.1")
    base = f"http://127.0.0.1/api/v1/notifications/{parked}"
    assert f'curl -H "Authorization: Bearer $FIELDPOST_TOKEN" {base}' in copied
    assert f"fieldpost notifications show {parked} --url http://127.0.0.1" in copied
    assert f"fieldpost notifications retry {parked} --url http://127.0.0.1" in copied
    [retry] = [text for text in copied if text.endswith("/retry")]
    assert f"""-d '{{"version": {version}}}'""" in retry
    assert cookie not in visitor.page.text
    for text in set(copied):
        assert f"<code>{html.escape(text, quote=False)}</code>" in visitor.page.text.replace("&#34;", '"').replace(
            "&#39;", "'"
        ), "without scripts it can be read"


@pytest.mark.bad_input(55)
async def test_conflict_page_shows_the_other_action_and_links_back(quick: Front) -> None:
    parked = await quick.park(subject="Pump 3 is hot")
    listed = "/notifications?status=parked&site=plant-7"
    async with visiting(quick, "operator") as one, visiting(quick, "admin") as other:
        await one.look(listed)
        await other.look(f"/notifications/{parked}")
        await other.send(f"/notifications/{parked}/retry")
        late = await one.send(f"/notifications/{parked}/retry")
        assert late.status_code == 409
        assert "Nothing was changed" in one.text
        assert "admin has retried it." in one.text
        assert "○ pending" in one.text
        assert f'href="{html.escape(listed)}">Notifications, filtered' in one.page.text
        asked = await one.look(f"/notifications/{parked}/discard")
        assert "It is pending, and only parked ones can be discarded." in asked
    assert (await quick.centre.get(parked)).status is Status.PENDING


async def test_page_links_to_similar_notifications(quick: Front) -> None:
    parked = await quick.park(NO_USER)
    quick.centre.adapter.answer("ops", PermanentFailure(NO_USER))
    await quick.centre.send("ops", subject="Another one")
    await quick.centre.deliver()
    async with visiting(quick, "viewer") as visitor:
        await visitor.look(f"/notifications/{parked}")
        ways = dict(re.findall(r'class="same" href="([^"]*)">(same [a-z]+)', visitor.page.text))
        assert sorted(ways.values()) == ["same error", "same list", "same site"]
        for path in ways:
            assert "Another one" in await visitor.look(html.unescape(path))


async def test_page_of_an_unparked_notification_links_to_all_with_its_error_in_any_status(quick: Front) -> None:
    error = f"ops@example.org: {NO_USER}"
    await quick.park(NO_USER, subject="Parked one")
    quick.centre.adapter.answer("ops", TransientFailure(error))
    retrying = await quick.centre.send("ops", subject="Retrying one")
    await quick.centre.deliver()
    await quick.park("554 too large", subject="Other one")
    async with visiting(quick, "operator") as visitor:
        await visitor.look(f"/notifications/{retrying}")
        (path,) = re.findall(r'class="same" href="([^"]*)">same error', visitor.page.text)
        text = await visitor.look(html.unescape(path))
        assert "Parked one" in text
        assert "Retrying one" in text
        assert "Other one" not in text
        assert "selected>not delivered</option>" in visitor.page.text
        assert "Retry all…" in text, "those that are parked can be retried from here"


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example/", "javascript:alert(1)"])
async def test_back_link_does_not_lead_to_another_server(quick: Front, back: str) -> None:
    parked = await quick.park()
    async with visiting(quick, "viewer") as visitor:
        await visitor.look(f"/notifications/{parked}", back=back)
        assert 'class="crumb"><a href="/"' in visitor.page.text
