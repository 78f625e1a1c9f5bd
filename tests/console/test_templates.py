"""A template in Chromium: written with a preview, and waiting events delivered live."""

import os

from playwright.async_api import Browser, Page, expect

from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from support.console import log_in
from support.front import ADMIN, Front

DOWN = "SERVICE_DOWN"


async def test_a_template_is_written_with_a_preview_and_waiting_events_are_delivered_live(
    front: Front, page: Page, browser: Browser, url: str
) -> None:
    await front.centre.add_channel()
    await front.centre.add_list("ops", "ann@example.org")
    await front.operate.topics.save(ADMIN, Topic(name=DOWN, example='{"service": "api"}'), None)
    entries = (FilterEntry(topic=DOWN),)
    await front.operate.routes.add(ADMIN, EventRoute(route_id="", name="down", filter=entries, list_name="ops"))
    event_id = new_id(front.clock.now(), os.urandom(10))
    event = Event(event_id=event_id, topic=DOWN, source="app:monitor", payload='{"service": "db"}')
    await front.centre.ingest.publisher.publish("app:monitor", [event])

    watching = await browser.new_page(base_url=url)
    await log_in(front, watching, "operator", f"/events/{event_id}")
    await expect(watching.get_by_text("Waits for a template")).to_be_visible()

    await log_in(front, page, "admin", "/templates")
    await page.get_by_role("alert").get_by_role("link", name=DOWN).click()
    await expect(page.get_by_role("alert")).to_contain_text("1 event waits for this template")
    await page.get_by_label("Subject").fill("{{ payload.servce }} is down")
    await page.get_by_label("Body", exact=True).fill("Please look at {{ payload.service }}.")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview")).to_contain_text("`payload.servce` is undefined")
    await page.get_by_label("Subject").fill("{{ payload.service }} is down")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview")).to_contain_text("api is down")
    await page.get_by_label("Preview with").select_option(event_id)
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview")).to_contain_text("db is down")
    front.clock.advance(1)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("1 waiting event gets its notifications now")).to_be_visible()

    # By itself, without a reload.
    await expect(watching.locator("main")).to_contain_text("pending")
    await front.centre.deliver()
    await expect(watching.locator("main .badge").first).to_contain_text("delivered")
    assert [one.subject for one in front.centre.adapter.envelopes] == ["db is down"]
