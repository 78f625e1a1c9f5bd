"""Walks through the pages of webhooks: subscribe and repair a receiver, clear a block, recover after an outage."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.async_api import Page, expect

from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.outcome import Delivered, Evidence, TransientFailure
from fieldpost.core.events.subscription import SubscriptionState
from fieldpost.core.notification import Status
from support.console import log_in
from support.front import ADMIN, Front
from support.hooks import FAILED, Hooks

SECRET_PAGE = "The signing secret is shown only once"
EXCHANGE = Exchange(
    url="https://93.184.216.34/orders",
    tries=(HttpTry(offset_ms=0, duration_ms=20, status=401),),
    request_headers={"webhook-signature": "***"},
    status=401,
    response_body="wrong password",
)
REFUSED = TransientFailure(
    "the receiver answered 401", phase="answer", reply="401", evidence=Evidence.FAILS, exchanges=(EXCHANGE,)
)
ACCEPTED = Delivered(reply="204", phase="answer", exchanges=(replace(EXCHANGE, status=204, response_body=""),))


async def test_user_subscribes_reads_why_the_test_fails_fixes_it_and_sees_an_event_delivered(
    front: Front, page: Page
) -> None:
    hooks = Hooks(front.centre, front.clock)
    front.operate.subscriptions._adapters = {"webhook": hooks.adapter}
    await log_in(front, page, "admin", "/subscriptions")
    await page.get_by_role("link", name="Add a subscription").first.click()
    await page.get_by_label("Name", exact=True).fill("billing")
    await page.get_by_label("Owner").fill("finance")
    await page.get_by_label("Events").fill("topic=orders.*")
    await page.get_by_label("url", exact=True).fill("https://93.184.216.34/orders")
    await page.get_by_role("button", name="Add").click()
    await expect(page.locator("main")).to_contain_text(SECRET_PAGE)
    (made,) = await front.operate.subscriptions.find()
    await page.goto(f"/subscriptions/{made.subscription_id}")
    await expect(page.locator("main")).to_contain_text("No deliveries yet")

    hooks.adapter.always["billing"] = REFUSED
    await page.get_by_role("button", name="Send test").click()
    await expect(page.locator("#tested")).to_contain_text("the receiver answered 401")
    await hooks.publish()
    await hooks.centre.deliver()
    # By itself, without a reload.
    log = page.locator(".deliveries")
    await expect(log).to_contain_text("The receiver answered 401")
    await log.get_by_text("Request and response").click()
    await expect(log.get_by_label("Response body")).to_have_text("wrong password")
    await expect(page.locator("#tested")).to_contain_text("the receiver answered 401")

    await page.get_by_label("auth", exact=True).select_option("basic")
    await page.get_by_label("username").fill("fieldpost")
    await page.get_by_label("auth_secret").fill("right password")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".message.good")).to_contain_text("Waiting notifications use the new values")
    hooks.adapter.always["billing"] = ACCEPTED
    await page.get_by_role("button", name="Send test").click()
    await expect(page.locator("#tested")).to_contain_text("The receiver accepted the test event.")
    front.clock.advance(timedelta(minutes=16).total_seconds())
    await hooks.centre.deliver()
    await expect(page.locator(".deliveries .badge.delivered")).to_be_visible()
    await expect(page.locator(".deliveries")).to_contain_text("1 earlier attempt")
    await expect(page.locator("header .badge").first).to_contain_text("healthy")


@pytest.mark.req("WHK-14", "WHK-15")
async def test_cleared_receiver_gets_its_held_notifications(front: Front, page: Page) -> None:
    hooks = Hooks(front.centre, front.clock)
    subscription = await hooks.subscribe()
    hooks.adapter.always["billing"] = FAILED
    await hooks.publish(10)
    await hooks.centre.deliver()
    assert (await hooks.breaker(subscription)).health == "blocked"
    await hooks.publish(4)
    await hooks.centre.deliver()

    await log_in(front, page, "operator", "/")
    await page.get_by_role("link", name="1 webhook receiver is blocked after failures").click()
    row = page.locator("tr[data-row]")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("blocked")
    await expect(row).to_contain_text("the receiver answered 500")
    await expect(page.locator(".tile", has_text="Held notifications")).to_contain_text("4")
    hooks.adapter.always.clear()
    await page.get_by_role("button", name="Clear billing").click()
    await expect(page.locator(".message.good")).to_contain_text("Breaker closed")
    await expect(page.get_by_role("heading", name="All receivers are healthy")).to_be_visible()
    for _ in range(3):  # in growing steps
        await hooks.centre.deliver()
    delivered = await front.centre.rows("select count(*) from notifications where status = 'delivered'")
    assert delivered == [(4,)], "the held ones; the others wait for their retry time"

    # A receiver that fails again appears by itself.
    hooks.adapter.always["billing"] = FAILED
    await hooks.publish()
    await hooks.centre.deliver()
    await expect(row).to_contain_text("monitored")
    await expect(page.locator(".tile", has_text="Monitored")).to_contain_text("1")


async def test_events_of_an_outage_are_recovered_with_preview_and_progress(front: Front, page: Page) -> None:
    hooks = Hooks(front.centre, front.clock)
    subscription = await hooks.subscribe()
    id_ = subscription.subscription_id
    await hooks.publish(2)
    await hooks.actions.disable(ADMIN, id_, 1, "moves to another machine")
    await hooks.centre.deliver()
    await hooks.publish(250)
    front.clock.advance(60)

    await log_in(front, page, "admin", f"/subscriptions/{id_}")
    await expect(page.locator(".why")).to_contain_text("moves to another machine")
    await page.get_by_role("link", name="Enable and recover…").click()
    await expect(page.locator("main")).to_contain_text("Since it was disabled")
    since = (front.clock.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    await page.get_by_label("Events since").fill(since)
    await page.get_by_role("button", name="Count").click()
    parked = await front.centre.rows("select count(*) from notifications where status = 'parked'")
    await expect(page.locator("main")).to_contain_text(f"{parked[0][0]} parked notifications are retried")
    await expect(page.locator("main")).to_contain_text("250 missing ones are created")
    await page.get_by_role("button", name="Enable and recover").click()
    await page.wait_for_url("**/bulk-actions/*")
    assert (await hooks.state(subscription)).state is SubscriptionState.ACTIVE
    for _ in range(20):
        await front.operate.bulk_actions.sweep()
        front.clock.advance(2)
    await expect(page.locator(".action-progress")).to_contain_text(re.compile(r"\d+ of \d+ done"))
    await expect(page.locator(".action-state")).to_contain_text("Finished")
    await hooks.centre.deliver()
    statuses = await front.centre.rows("select status, count(*) from notifications group by status")
    assert statuses == [(Status.DELIVERED.value, 252)]
    await page.goto(f"/subscriptions/{id_}")
    await expect(page.locator(".deliveries .badge.delivered").first).to_be_visible()


async def test_form_shows_the_fields_of_the_chosen_credentials(front: Front, page: Page) -> None:
    await log_in(front, page, "admin", "/new/subscription")
    shown = {
        name: page.get_by_label(name, exact=True) for name in ("auth_header", "username", "auth_secret", "token_url")
    }
    for choice, visible in {
        "": set(),
        "header": {"auth_header", "auth_secret"},
        "basic": {"username", "auth_secret"},
        "oauth2": {"auth_secret", "token_url"},
    }.items():
        await page.get_by_label("auth", exact=True).select_option(choice)
        for name, field in shown.items():
            await expect(field).to_be_visible(visible=name in visible)
    # What would be sent stays in sight.
    await shown["token_url"].fill("https://93.184.216.34/token")
    await page.get_by_label("auth", exact=True).select_option("none")
    await expect(shown["token_url"]).to_be_visible()
    await expect(shown["auth_secret"]).to_be_hidden()
