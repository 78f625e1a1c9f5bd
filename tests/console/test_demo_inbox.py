"""The mail catcher's inbox in Chromium, as a person at the demo sees it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Page, expect

from fieldpost.demo.inbox import Inbox
from fieldpost.testing import ReceivedMail
from support.console import on_shared_loop, watched

MAIL = ReceivedMail(
    number=1,
    connection=1,
    sender="alarms@plant.example",
    recipients=("ops@plant.example",),
    received_at=datetime(2026, 11, 15, 8, 12, 31, tzinfo=UTC),
    raw=b"Subject: Pump 3: bearing temperature 92 C, limit 85 C, in hall two of the northern plant\r\n\r\nhot\r\n",
)


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[ReceivedMail] = []

    def add(self, recipient: str = "ops@plant.example") -> None:
        self.mails.append(replace(MAIL, number=len(self.mails) + 1, recipients=(recipient,)))


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@on_shared_loop
async def page(mailbox: Mailbox, browser: Browser) -> AsyncIterator[Page]:
    async with Inbox(mailbox).listening() as url, watched(await browser.new_context(base_url=url)) as opened:
        yield opened


async def test_new_mail_appears_automatically(mailbox: Mailbox, page: Page) -> None:
    await page.goto("/")
    await expect(page.get_by_role("heading", name="No message yet")).to_be_visible()
    await expect(page.get_by_role("status")).to_have_text("live")
    mailbox.add()
    await expect(page.locator("tr[data-number='1']")).to_be_visible()
    await page.locator(".subject a").focus()
    mailbox.add()
    await expect(page.locator("tr[data-number='2']")).to_have_class("is-new")
    # What the reader has under his fingers stays there.
    assert await page.evaluate("document.activeElement.getAttribute('href')") == "/mails/1"
    await expect(page).to_have_title("Inbox (2) · Fieldpost demo")


async def test_the_filter_narrows_the_list_and_a_mail_opens(mailbox: Mailbox, page: Page) -> None:
    mailbox.add("ops@plant.example")
    mailbox.add("night@plant.example")
    await page.goto("/")
    await page.get_by_label("Address").fill("night")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator("tr[data-number]")).to_have_count(1)
    await page.locator(".subject a").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Pump 3")
    await expect(page.locator("pre.text")).to_have_text("hot\n")


@pytest.mark.parametrize("path", ["/", "/mails/1"])
async def test_a_phone_needs_no_scrolling_sideways(mailbox: Mailbox, page: Page, path: str) -> None:
    mailbox.add("a-very-long-recipient-address-of-the-night-shift@maintenance.northern-plant.example")
    await page.set_viewport_size({"width": 400, "height": 800})
    await page.goto(path)
    await page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    assert await page.evaluate("document.documentElement.scrollWidth") == 400
