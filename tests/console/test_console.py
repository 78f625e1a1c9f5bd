"""The console in Chromium, as an operator uses it."""

import re
from datetime import timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from fieldpost.core.actor import Role
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.notification import Status
from support.console import expect_fit_and_contrast, log_in
from support.front import ADMIN, Front
from support.running_central import until

OUTBOX = "/notifications"


async def test_operator_logs_in_finds_a_parked_notification_reads_the_reason_and_retries_it(
    front: Front, page: Page
) -> None:
    parked = await front.park("550 5.1.1 no such user", subject="Pump 3 is hot", body="It has 93 °C.")
    await log_in(front, page, "operator", OUTBOX)
    await expect(page.get_by_role("heading", name="Notifications")).to_be_attached()
    row = page.locator("tbody tr", has_text="Pump 3 is hot")
    await expect(row).to_contain_text("parked")
    await expect(row).to_contain_text("550 5.1.1 no such user")
    await row.get_by_role("link", name="Pump 3 is hot", exact=True).click()

    await expect(page.locator(".why")).to_contain_text("It stays parked until an operator retries or discards it")
    steps = page.locator(".timeline li")
    await expect(steps).to_contain_text(
        ["Sent at plant-7", "Arrived at central", "Attempt 1: failed permanently", "Parked until an operator acts"]
    )
    await expect(steps.nth(2)).to_contain_text("phase rcpt")
    await expect(page.locator(".targets li")).to_have_text(re.compile("failed.*ops@example.org.*550", re.DOTALL))
    await expect(page.get_by_label("Body")).to_have_text("It has 93 °C.")

    await page.get_by_role("button", name="Retry").click()
    await expect(page.locator("main .badge").first).to_contain_text("pending")
    await expect(page.get_by_text("pending again and due now")).to_be_visible()
    assert (await front.centre.get(parked)).status is Status.PENDING
    await front.centre.deliver()
    # By itself, without a reload.
    await expect(page.locator("main .badge").first).to_contain_text("delivered")
    await expect(steps.last).to_contain_text("Delivered")
    await expect(page.locator(".timeline")).to_contain_text("Retried by operator")


async def test_discarding_asks_for_confirmation(front: Front, browser: Browser, url: str) -> None:
    parked = await front.park(subject="Pump 3 is hot")
    page = await browser.new_page(base_url=url)
    await log_in(front, page, "operator", OUTBOX)
    row = page.locator("tbody tr", has_text="Pump 3 is hot")
    question = page.get_by_role("dialog")
    await row.get_by_role("link", name="Discard").click()
    await expect(question).to_contain_text("Pump 3 is hot")
    await question.get_by_role("link", name="Cancel").click()
    await expect(question).to_be_hidden()
    await expect(row).to_contain_text("parked")
    assert (await front.centre.get(parked)).status is Status.PARKED
    await row.get_by_role("link", name="Discard").click()
    await question.get_by_role("button", name="Discard").click()
    await expect(row).to_contain_text("discarded")
    assert (await front.centre.get(parked)).status is Status.DISCARDED


async def test_new_notification_appears_in_the_list_automatically(front: Front, page: Page) -> None:
    await log_in(front, page, "viewer", OUTBOX)
    await expect(page.get_by_role("heading", name="No notifications yet")).to_be_visible()
    await front.centre.send("ops", subject="Pump 3 is hot")
    front.clock.advance(3)
    row = page.locator("tbody tr", has_text="Pump 3 is hot")
    await expect(row).to_contain_text("pending")
    await expect(page.get_by_role("link", name="pending 1")).to_be_visible()


async def test_times_are_local_with_utc_on_hover_also_after_a_live_update(
    front: Front, browser: Browser, url: str
) -> None:
    page = await browser.new_page(base_url=url, timezone_id="Asia/Tokyo")
    await log_in(front, page, "viewer", OUTBOX)
    stamp = page.locator(".as-of time")
    for minutes in (0, 3):
        front.clock.advance(minutes * 60)
        await page.evaluate("htmx.trigger('#live', 'changed')")
        now = front.clock.now()
        await expect(stamp).to_have_attribute("title", f"{now:%Y-%m-%d %H:%M:%S} UTC")
        await expect(stamp).to_have_text(re.compile(rf"\b{now + timedelta(hours=9):%H:%M}(:\d\d)?$"))


async def test_the_list_does_not_move_under_the_pointer_and_its_rows_change_in_place(front: Front, page: Page) -> None:
    await front.centre.add_channel()
    await front.centre.add_list()
    await front.centre.send("ops", subject="First")
    await log_in(front, page, "viewer", OUTBOX)
    rows = page.locator("tbody tr[data-row]")
    first = rows.filter(has_text="First")
    await first.hover()
    place = await first.bounding_box()
    front.clock.advance(1)
    await front.centre.send("ops", subject="Second")
    await expect(page.get_by_role("button", name="1 new: show")).to_be_visible()
    await expect(rows).to_have_count(1)
    await front.centre.deliver()
    await expect(first).to_contain_text("delivered")
    await expect(rows).to_have_count(1)
    assert await first.bounding_box() == place
    await page.get_by_role("button", name="1 new: show").click()
    await expect(rows).to_have_count(2)


async def test_hidden_page_closes_its_connection_and_catches_up_when_shown(
    front: Front, browser: Browser, url: str
) -> None:
    page = await browser.new_page(base_url=url)
    await log_in(front, page, "viewer", OUTBOX)
    change_feed = front.app.state.backend.change_feed
    await until(lambda: change_feed.listeners == 1)
    await _show(page, is_hidden=True)
    await until(lambda: change_feed.listeners == 0)
    await front.centre.send("ops", subject="While away")
    await _show(page, is_hidden=False)
    await expect(page.locator("tbody tr", has_text="While away")).to_be_visible()
    await until(lambda: change_feed.listeners == 1)


async def test_wrong_password_is_rejected_and_the_name_stays_in_the_form(front: Front, page: Page) -> None:
    await page.goto("/")
    await page.get_by_label("Name").fill("operator")
    await page.get_by_label("Password").fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    await expect(page.get_by_label("Name")).to_have_value("operator")
    await expect(page.get_by_label("Password")).to_have_value("")


async def test_logging_out_leads_to_the_login(front: Front, page: Page) -> None:
    await log_in(front, page, "viewer", OUTBOX)
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


async def test_without_scripts_a_user_can_read_filter_retry_and_discard(front: Front, scriptless: Page) -> None:
    page = scriptless
    first = await front.park(subject="Pump 3 is hot")
    second = await front.park(subject="Tank 12 is low")
    await front.deliver(subject="All is well")
    await log_in(front, page, "operator", OUTBOX)
    await page.locator("select[name=status]").select_option("parked")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.locator("tbody tr", has_text="Pump 3").get_by_role("button", name="Retry").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("link", name="Tank 12 is low", exact=True).click()
    await expect(page.locator(".timeline")).to_contain_text("Parked")
    await page.get_by_role("link", name="Discard").click()
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator("main .badge").first).to_contain_text("discarded")
    assert (await front.centre.get(first)).status is Status.PENDING
    assert (await front.centre.get(second)).status is Status.DISCARDED


@pytest.mark.threat(11)
async def test_a_hostile_subject_is_shown_as_text_and_runs_nothing(front: Front, page: Page) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    parked = await front.park(evil, subject=evil, body=evil)
    await log_in(front, page, "operator", OUTBOX)
    await expect(page.locator("tr[data-row] a.open")).to_have_text(evil)
    await page.goto(f"/notifications/{parked}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(evil)
    await expect(page.get_by_label("Body")).to_have_text(evil)
    assert await page.locator("img:not(.brand img)").count() == 0


@pytest.mark.threat(10)
@pytest.mark.bad_input(57)
async def test_form_on_another_site_changes_nothing(front: Front, page: Page, url: str) -> None:
    parked = await front.park()
    version = (await front.centre.get(parked)).version
    await log_in(front, page, "operator", OUTBOX)
    target = f"{url}/notifications/{parked}/retry"
    form = f'<form method=post action="{target}"><input name=version value={version}><button>Win</button></form>'
    await page.route("http://evil.example/", lambda route: route.fulfill(body=form, content_type="text/html"))
    await page.goto("http://evil.example/")
    async with page.expect_response(target) as answered:
        await page.get_by_role("button", name="Win").click()
    answer = await answered.value
    # Lax keeps the cookie at home, so the form is a stranger's: it is sent to the login and has done nothing.
    assert answer.status in (303, 403)
    assert (await front.centre.get(parked)).status is Status.PARKED


async def test_page_reports_that_central_is_unreachable_and_recovers(front: Front, browser: Browser, url: str) -> None:
    await front.centre.send("ops", subject="First")
    page = await browser.new_page(base_url=url)
    await log_in(front, page, "viewer", OUTBOX)
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.wait_for_load_state()
    await page.route("**/*", lambda route: route.abort())
    await page.evaluate("htmx.trigger('#live', 'changed')")
    await expect(page.get_by_text("Central does not respond")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.unroute("**/*")
    await page.evaluate("htmx.trigger('#live', 'changed')")
    await expect(page.get_by_text("Central does not respond")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1280)])
async def test_nothing_overflows_and_text_is_readable(
    front: Front, browser: Browser, url: str, scheme: str, width: int
) -> None:
    await front.park("x" * 900, subject="A subject that is much longer than a narrow screen is wide, " * 4)
    front.centre.adapter.answer("ops", TransientFailure("451 busy"))
    retrying = await front.centre.send("ops", subject="w" * 300)
    await front.centre.deliver()
    await front.deliver()
    page = await browser.new_page(base_url=url, color_scheme=scheme, viewport={"width": width, "height": 800})  # type: ignore[arg-type]
    await page.goto("/login")
    await expect_fit_and_contrast(page)
    await page.goto((await front.operate.users.reset_password(ADMIN, "viewer")).path)
    await expect_fit_and_contrast(page)
    await log_in(front, page, "operator", OUTBOX)
    await expect_fit_and_contrast(page)
    for path in (f"/notifications/{retrying}", "/notifications?status=discarded", "/nowhere", "/account"):
        await page.goto(path)
        await expect_fit_and_contrast(page)
    await page.goto("/notifications?status=parked")
    await page.locator("tr[data-row] a.open").click()
    await expect(page.locator(".timeline")).to_be_attached()
    await expect_fit_and_contrast(page)


@pytest.mark.threat(12)
async def test_user_logs_in_by_a_link_changes_the_password_and_logs_out_everywhere(
    front: Front, page: Page, scriptless: Page
) -> None:
    link = await front.operate.users.add(ADMIN, "anna", Role.OPERATOR)
    await page.goto(link.path)
    await page.get_by_label("Password", exact=True).fill("several words of mine")
    await page.get_by_label("Repeat password").fill("several words of mine")
    await page.get_by_role("button", name="Set password and log in").click()
    await expect(page.get_by_role("heading", name="Health", level=1)).to_be_attached()

    await scriptless.goto("/login")
    await scriptless.get_by_label("Name").fill("anna")
    await scriptless.get_by_label("Password").fill("several words of mine")
    await scriptless.get_by_role("button", name="Log in").click()
    await expect(scriptless.get_by_role("heading", name="Health", level=1)).to_be_attached()
    await page.get_by_role("link", name="anna").click()
    await expect(page.locator(".sessions tbody tr")).to_have_count(2)
    await page.get_by_label("Current password").fill("several words of mine")
    await page.get_by_label("New password", exact=True).fill("other words of mine")
    await page.get_by_label("Repeat new password").fill("other words of mine")
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_role("status").filter(has_text="Password changed")).to_be_visible()
    await expect(page.locator(".sessions tbody tr")).to_have_count(1)
    await scriptless.goto("/")
    await expect(scriptless.get_by_role("heading", name="Log in")).to_be_visible()


async def _show(page: Page, *, is_hidden: bool) -> None:
    """As if the visitor went to another tab, or came back."""
    await page.evaluate(
        """(isHidden) => {
            Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )
