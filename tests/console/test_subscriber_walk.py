"""The developer of a receiver: subscribes, finds out why the test fails, fixes it, and sees an event delivered."""

import os
import re

import pytest
from playwright.async_api import Page, expect

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.events import topics
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import WebhookReceiver
from support.console import expect_fit_and_contrast, log_in
from support.front import ADMIN, OWNER, Front

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}


@pytest.mark.dec("DEC-51", "DEC-81")
async def test_a_subscriber_subscribes_reads_why_the_test_fails_fixes_it_and_sees_it_delivered(
    front: Front, page: Page
) -> None:
    outbound = Outbound(OutboundOptions(allow="127.0.0.1"))
    adapter = WebhookAdapter(outbound=outbound, clock=front.clock)
    front.operate.subscriptions._adapters = front.centre.adapters = {"webhook": adapter}
    front.operate.subscriptions._options = WebhookOptions(allow_plain=True)
    now = front.clock.now()
    await front.centre.store.write(topics.add, Topic(name="orders.created", owners=(OWNER,)), now)
    await front.centre.store.write(topics.add, Topic(name="payroll.paid"), now)
    await front.operate.subscriptions.add(
        ADMIN, "theirs", "other", [FilterEntry(topic="payroll.*")], {"url": "http://127.0.0.1:9999/in"}
    )
    async with WebhookReceiver(clock=front.clock) as receiver:
        await log_in(front, page, "subscriber")
        await expect(page.get_by_role("heading", name="Subscriptions", level=1)).to_be_visible()
        await expect(page.get_by_text("No subscriptions yet")).to_be_visible()
        await expect(page.locator("#menu a")).to_have_text(
            [re.compile(t) for t in ("Topics", "Subscriptions", "Tokens")]
        )
        await look_at(page, "list")
        await page.get_by_role("link", name="Topics", exact=True).click()
        await expect(page.get_by_text("payroll.paid")).to_have_count(0)
        await page.get_by_role("link", name="orders.created", exact=True).click()
        await look_at(page, "topic")
        await page.get_by_role("link", name="Subscribe", exact=True).click()
        await page.get_by_label("Name", exact=True).fill("billing")
        await page.get_by_role("textbox", name="url", exact=True).fill(receiver.url("biling"))
        await look_at(page, "new")
        await page.get_by_role("button", name="Add").click()
        secret = await page.locator("code.secret").inner_text()
        receiver.add("billing", secret)
        await page.get_by_role("link", name="Open the subscription").click()
        await expect(page.locator(".why")).to_contain_text("has not answered a signed test yet")
        await publish(front)
        await front.centre.deliver()
        await expect(page.locator(".deliveries")).to_contain_text("has not answered a signed test with 2xx yet")

        await page.get_by_role("button", name="Send test and activate").click()
        await expect(page.locator("#tested")).to_contain_text("404")
        await expect(page.locator(".why")).to_contain_text("has not answered a signed test yet")
        await look_at(page, "failed")

        await page.get_by_role("textbox", name="url", exact=True).fill(receiver.url("billing"))
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".message.good")).to_be_visible()
        await page.get_by_role("button", name="Send test and activate").click()
        await expect(page.locator("#tested")).to_contain_text("accepted the test event")
        await expect(page.locator(".why")).to_have_count(0)

        front.clock.advance(60)
        for _ in range(3):
            await front.centre.deliver()
        assert len(await receiver.accepted(2, "billing")) == 2, "the test, and the event that was held"
        # By itself, without a reload.
        await expect(page.locator(".deliveries .badge.delivered")).to_be_visible()
        await look_at(page, "delivered")
        await page.locator(".deliveries a.open").click()
        await expect(page.get_by_role("button", name="Send again")).to_be_visible()
        await look_at(page, "notification")
        assert receiver.forged == []
    await adapter.close()
    await outbound.close()


async def publish(front: Front) -> None:
    publisher = Ingest(front.centre.store, front.clock, events=PublishOptions()).publisher
    event_id = new_id(front.clock.now(), os.urandom(10))
    event = Event(event_id=event_id, topic="orders.created", source="app:shop", payload='{"order": 17}')
    [verdict] = await publisher.publish("app:shop", [event])
    assert verdict.verdict == "accepted"


async def look_at(page: Page, name: str) -> None:
    """Nothing is cut off and everything can be read: light, dark and on a phone. Pictures go to PICTURES if given."""
    folder = os.environ.get("PICTURES")
    for form, scheme, size in (("phone", "light", PHONE), ("dark", "dark", DESK), ("light", "light", DESK)):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.set_viewport_size(size)  # type: ignore[arg-type]
        await expect_fit_and_contrast(page)
        if folder:
            await page.screenshot(path=f"{folder}/{name}-{form}.png", full_page=True)
