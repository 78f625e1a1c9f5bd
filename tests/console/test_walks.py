"""Whole walks of an operator through the console, from what he sees first to what he wanted."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from fieldpost import Site
from fieldpost.central import adapters
from fieldpost.central.operate.bulk_step import step
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.notification import Status
from fieldpost.core.sites.message import CallStatus
from fieldpost.testing import HttpServer, MailServer
from support.centre import SITE
from support.console import log_in, watched
from support.front import ADMIN, Front
from support.journey import RunningAgent
from support.running_central import RunningCentral, until

REFUSED = "535 5.7.8 authentication failed"


async def test_first_user_chooses_a_password_by_the_link_and_logs_in(
    sqlite_url: str, tmp_path: Path, browser: Browser
) -> None:
    async with RunningCentral(sqlite_url, tmp_path / "central") as central:
        link = (central.folder / "first-login").read_text().strip()
        async with watched(await browser.new_context()) as page:
            await page.goto(link)
            await page.get_by_label("Password", exact=True).fill("several words of mine")
            await page.get_by_label("Repeat password").fill("several words of mine")
            await page.get_by_role("button", name="Set password and log in").click()
            await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
            await page.get_by_role("button", name="Log out").click()
            await page.get_by_label("Name").fill("admin")
            await page.get_by_label("Password").fill("several words of mine")
            await page.get_by_role("button", name="Log in").click()
            await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
            # What was the key to the first start opens nothing a second time.
            used = await page.request.get(link)
            assert used.status == 404
            assert 'name="password"' not in await used.text()


async def test_parked_mail_is_found_explained_fixed_and_delivered(front: Front, page: Page) -> None:
    async with MailServer() as mail:
        refusal = "5.7.1 Sender address rejected: not owned by user"
        mail.on("rcpt", when=lambda moment: moment.sender == "pumps@example.org").reply(550, refusal)
        settings = {"host": mail.host, "port": mail.port, "tls": "none", "from_address": "pumps@example.org"}
        await front.operate.channels.add(ADMIN, "mail", "email", settings, is_default=True)
        await front.operate.lists.add(ADMIN, ListSpec(name="ops", targets=("ops@example.org",)))
        front.centre.adapters = adapters.load()
        for subject in ("Tank 7: level high", "Pump 3: pressure low"):
            parked = await front.centre.send("ops", subject=subject)
        await front.centre.deliver()
        assert (await front.centre.get(parked)).status is Status.PARKED

        await log_in(front, page, "admin", "/notifications")
        await page.get_by_label("Subject").fill("pressure")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tr[data-row]")).to_have_count(1)
        await page.get_by_role("link", name="Pump 3: pressure low", exact=True).click()
        await expect(page.locator(".why")).to_contain_text("It stays parked until an operator retries or discards it")
        await expect(page.locator("main")).to_contain_text(refusal)
        notification = page.url

        await page.goto("/channels/mail")
        await page.get_by_label("from_address").fill("alerts@example.org")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".message.good")).to_be_visible()

        await page.goto(notification)
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator(".badge.pending").first).to_be_visible()
        await front.centre.deliver()
        assert (await front.centre.get(parked)).status is Status.DELIVERED
        # By itself, without a reload.
        await expect(page.locator(".badge.delivered").first).to_be_visible()
        assert [sent.subject for sent in await mail.received(1)] == ["Pump 3: pressure low"]
        for adapter in front.centre.adapters.values():
            await adapter.close()


async def test_five_hundred_parked_notifications_are_retried_together_with_progress(front: Front, page: Page) -> None:
    ids = await park_many(front, 500)
    await log_in(front, page, "operator", "/notifications?status=parked")
    await page.get_by_role("link", name="Retry all…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("Retry 500 parked notifications?")
    await expect(question.get_by_label("Examples")).to_contain_text(REFUSED)
    await question.get_by_label("Reason").fill("the password was renewed")
    await question.get_by_role("button", name="Retry 500").click()
    await page.wait_for_url("**/bulk-actions/*")
    action_id = re.sub(r".*/bulk-actions/([0-9a-f-]+).*", r"\1", page.url)
    progress = page.locator(".action-progress")

    for said in (None, "200 of 500 done", "400 of 500 done", "500 of 500 done"):
        await front.centre.store.write(step, action_id, now=front.clock.now())
        if said is not None:
            # By itself, without a reload.
            await expect(progress).to_contain_text(said)
    await expect(page.locator(".action-state")).to_contain_text("Finished")
    await expect(page.locator("main")).to_contain_text("the password was renewed")
    assert {(await front.centre.get(one)).status for one in (ids[0], ids[250], ids[499])} == {Status.PENDING}


async def test_viewer_sees_the_required_role_and_is_rejected_on_trying(
    front: Front, browser: Browser, url: str
) -> None:
    parked = await front.park(subject="Pump 3 is hot")
    # The browser notes a refusal in its console by itself, so nobody watches that here.
    page = await browser.new_page(base_url=url)
    await log_in(front, page, "viewer", f"/notifications/{parked}")
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    await expect(page.locator("main")).to_contain_text("your role is viewer")
    await page.goto(f"/notifications/{parked}/discard")
    await expect(page.locator("main")).to_contain_text("operator")
    # A form that is not offered, sent all the same.
    await page.goto("/account")
    await page.evaluate(
        """(path) => {
            const form = document.querySelector("form[action='/logout']");
            form.action = path;
            form.submit();
        }""",
        f"/notifications/{parked}/retry",
    )
    await expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    await expect(page.locator("main")).to_contain_text("operator")
    assert (await front.centre.get(parked)).status is Status.PARKED


@pytest.mark.bad_input(55)
async def test_later_of_two_tabs_shows_a_conflict(front: Front, browser: Browser, url: str) -> None:
    parked = await front.park(subject="Pump 3 is hot")
    context = await browser.new_context(base_url=url, java_script_enabled=False)
    first, second = await context.new_page(), await context.new_page()
    await log_in(front, first, "operator", f"/notifications/{parked}")
    await second.goto(f"/notifications/{parked}")
    await first.get_by_role("button", name="Retry").click()
    await expect(first.get_by_role("status").filter(has_text="pending again")).to_be_visible()

    # The other tab still shows a parked one, and its button.
    await second.get_by_role("button", name="Retry").click()
    await expect(second.locator("main")).to_contain_text("Nothing was changed")
    await expect(second.locator("main")).to_contain_text("pending")
    assert await retries(front, parked) == 1
    # The back button leads to no old form: nothing is kept, so the page comes anew, as it stands.
    await second.go_back()
    await expect(second.locator(".badge.pending").first).to_be_visible()
    await expect(second.get_by_role("button", name="Retry")).to_have_count(0)


async def test_without_scripts_many_are_retried_and_progress_is_shown(front: Front, scriptless: Page) -> None:
    ids = await park_many(front, 3)
    page = scriptless
    await log_in(front, page, "operator", "/notifications?status=parked")
    await page.get_by_label("Select Meter readings are ready").first.check()
    await page.get_by_role("button", name="Discard…").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Discard 1 parked notification?")
    await page.get_by_label("Reason").fill("it is of yesterday")
    await page.get_by_role("button", name="Discard 1").click()
    await expect(page.locator(".action-progress")).to_be_attached()
    await front.operate.bulk_actions.sweep()
    await page.reload()
    await expect(page.locator(".action-progress")).to_contain_text("1 of 1 done")

    await page.goto("/notifications?status=parked")
    await expect(page.locator("tr[data-row]")).to_have_count(2)
    await page.get_by_role("link", name="Retry all…").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Retry 2 parked notifications?")
    # Without a reason it is asked again, and what was chosen stays.
    await page.get_by_label("Reason").evaluate("field => field.removeAttribute('required')")
    await page.get_by_role("button", name="Retry 2").click()
    await expect(page.locator(".error").first).to_be_visible()
    await page.get_by_label("Reason").fill("the password was renewed")
    await page.get_by_role("button", name="Retry 2").click()
    await expect(page.locator(".action-progress")).to_be_attached()
    await front.operate.bulk_actions.sweep()
    await page.reload()
    await expect(page.locator(".action-progress")).to_contain_text("2 of 2 done")
    statuses = [(await front.centre.get(one)).status for one in ids]
    assert sorted(statuses) == [Status.DISCARDED, Status.PENDING, Status.PENDING]


@pytest.mark.req("KPI-08", "KPI-10")
async def test_tiles_of_health_and_notifications_are_live(front: Front, page: Page) -> None:
    await log_in(front, page, "viewer")
    parked = page.locator(".tile", has_text="parked")
    await expect(parked).to_contain_text("0")
    await front.park(subject="Pump 3 is hot")
    # By themselves, and each leads to its rows.
    await expect(parked).to_contain_text("1")
    await parked.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="Notifications", level=1)).to_be_visible()
    await expect(page.locator("tr[data-row]")).to_have_count(1)
    await expect(page.locator(".tile", has_text="queue depth")).to_contain_text("0")
    await front.centre.send("ops", subject="Tank 7: level high")
    front.clock.advance(2)
    await expect(page.locator(".tile", has_text="queue depth")).to_contain_text("1")


@pytest.mark.threat(11)
async def test_no_page_can_be_framed(front: Front, browser: Browser, url: str) -> None:
    parked = await front.park(subject="Pump 3 is hot")
    context = await browser.new_context(base_url=url)
    page = await context.new_page()
    await log_in(front, page, "operator")
    # On the same host, so that the session's cookie comes along; one server lets itself be framed, for comparison.
    async with HttpServer() as elsewhere:
        html = {"Content-Type": "text/html"}
        elsewhere.on(path="/harmless").answer(200, "<p>harmless</p>", html)
        for path in ("/", "/notifications", f"/notifications/{parked}", "/login", "/nowhere"):
            frames = f'<iframe src="{url}{path}"></iframe><iframe src="/harmless"></iframe>'
            elsewhere.on(path="/").answer(200, frames, html).times(1)
            await page.goto(elsewhere.url)
            framed, harmless = await until(lambda: frames_of(page), what="both frames to end up somewhere")
            assert harmless.endswith("/harmless")
            assert framed.startswith("chrome-error:"), framed


@pytest.mark.bad_input(55)
async def test_a_button_pressed_twice_acts_once(front: Front, browser: Browser, url: str) -> None:
    parked = await front.park(subject="Pump 3 is hot")
    page = await browser.new_page(base_url=url)
    await log_in(front, page, "operator", f"/notifications/{parked}")
    statuses = await page.evaluate(
        """async () => {
            const form = document.querySelector("form[action$='/retry']");
            const send = () => fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
            return (await Promise.all([send(), send(), send()])).map((answer) => answer.status);
        }"""
    )
    assert sorted(statuses) == [200, 409, 409]
    assert await retries(front, parked) == 1


async def test_requests_to_an_offline_site_are_done_when_it_returns(
    front: Front, page: Page, url: str, tmp_path: Path
) -> None:
    async with HttpServer() as erp, site_agent(tmp_path / "site", url, front.tokens["site"], erp.url) as (site, agent):
        erp.on().answer(503)
        command_sender = asyncio.create_task(front.commands.run())
        call_id = await asyncio.to_thread(lambda: site.external("erp").call("POST", "/orders", json={"order": 7}))
        await log_in(front, page, "operator", "/cached-calls?status=parked")
        row = page.locator("tr[data-row]", has_text="erp")
        await expect(row).to_contain_text("parked")

        assert await agent.stop() == 0
        front.clock.advance(90)
        await page.goto(f"/sites/{SITE}")
        await expect(page.locator("main")).to_contain_text("offline")
        await page.goto(f"/cached-calls/{call_id}")
        await page.get_by_role("link", name="Retry").first.click()
        question = page.get_by_role("dialog")
        await question.get_by_role("button", name="Retry").click()
        await expect(page.locator("main")).to_contain_text("waiting")

        erp.behave()
        await agent.start()
        # By itself: the site comes, hears of it, does it and tells.
        await expect(page.locator("main")).to_contain_text("applied")
        await until(lambda: site.tracking.status(call_id).status is CallStatus.DELIVERED)
        await page.goto(f"/sites/{SITE}")
        await expect(page.locator("main")).to_contain_text("online")
        command_sender.cancel()


async def park_many(front: Front, count: int) -> list[str]:
    """So many that parked for one reason."""
    await front.centre.add_channel()
    await front.centre.add_list("billing")
    front.centre.adapter.always["billing"] = PermanentFailure(REFUSED, phase="auth", reply=REFUSED)
    ids = await front.centre.send_many(count, "billing", subject="Meter readings are ready")
    await front.centre.deliver(slots=256, slots_per_key=256, batch_size=500)
    front.clock.advance(1)
    return ids


def frames_of(page: Page) -> list[str]:
    """Where the two frames of a page ended up; nothing before both have."""
    found = [frame.url for frame in page.main_frame.child_frames]
    return found if len(found) == 2 and not {"", "about:blank"} & set(found) else []


async def retries(front: Front, notification_id: str) -> int:
    return sum(line.startswith("operator_action") for line in await front.centre.story(notification_id))


@asynccontextmanager
async def site_agent(folder: Path, url: str, token: str, erp_url: str) -> AsyncIterator[tuple[Site, RunningAgent]]:
    """A site with an external system that it gives up on soon, and its agent, which runs."""
    with Site.create(folder, SITE, url, token) as made:
        with (folder / "site.toml").open("a") as settings:
            settings.write(
                "\n[forward]\ninterval_s = 0.2\npoll_s = 0.05\n"
                "[report]\nhealth_interval_s = 0.5\npoll_s = 0.1\nreconnect_interval_s = 0.2\n"
                f'[external.erp]\nurl = "{erp_url}"\nretry_interval_s = 0.2\nretries_max = 1\n'
            )
        made.close()
    with Site.open(folder) as site:
        agent = RunningAgent(folder)
        await agent.start()
        try:
            yield site, agent
        finally:
            if agent.is_running:
                await agent.kill()
