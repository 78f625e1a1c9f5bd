"""Every page of the console, as the sample world fills it: by day, by night and on a phone.

Every page in the table of pages is visited (support/page_addresses.py), so a new page is checked from its first day.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from support.console import log_in, watched
from support.databases import SqliteFiles
from support.front import served
from support.page_addresses import Address, addresses
from support.pictures import FORMS, opened
from support.world import NIGHT, World, open_world

AXE = Path(__file__).parent.parent / "support" / "vendor" / "axe.min.js"
JUDGE = """
async (which) => {
  const found = await axe.run(document, { resultTypes: ["violations"], runOnly: which });
  return found.violations
    .filter((rule) => ["serious", "critical"].includes(rule.impact))
    .map((rule) => [rule.id, rule.help, ...rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))].join(" | "));
}
"""
ALL = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
LAYOUT = {"type": "rule", "values": ["color-contrast", "target-size", "scrollable-region-focusable", "meta-viewport"]}
WHICH = {"light": ALL, "dark": COLOURS, "phone": LAYOUT}
"""What axe is asked: by night and on a phone, what those can change. The markup is the same, and was judged by day."""
SHORTEN = "document.querySelectorAll('tbody tr:nth-child(n + 13)').forEach((row) => row.remove())"
"""Rows are alike, and axe takes its time over each."""
BETWEEN = (640, 900, 1000, 1150)
"""Widths between a phone and a desk, at which a page changes its form; the first is a desk at 200 %."""
HIDDEN_IN_MENU = """
() => [...document.querySelectorAll("#menu a")].filter((link) => {
  const { left, right } = link.getBoundingClientRect();
  return left < 0 || right > window.innerWidth;
}).map((link) => link.textContent.trim())
"""
LOW_BUTTONS = """
() => [...document.querySelectorAll("button, .button")].filter((button) => {
  const { height } = button.getBoundingClientRect();
  return 0 < height && height < 24;
}).map((button) => button.textContent.trim())
"""
"""The target size of WCAG 2.2, without its exceptions."""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One for all: looking changes nothing."""
    async with open_world(sqlite_files.fresh(tmp_path_factory.mktemp("world"))) as opened_world:
        yield opened_world


@pytest.mark.timeout(600)
async def test_on_every_page_axe_finds_nothing_serious_and_nothing_scrolls_sideways(
    world: World, browser: Browser
) -> None:
    wrong: dict[str, list[str]] = {}
    async with (
        served(world.front.app) as url,
        watched(await opened(browser, url, "light")) as page,
        watched(await opened(browser, url, "light")) as stranger,
    ):
        await log_in(world.front, page, "admin")
        for address in addresses(world.places):
            found = await _judged(stranger if address.is_for_anyone else page, address)
            if found:
                wrong[address.path] = found
    assert wrong == {}


async def test_chart_shows_values_under_the_pointer_and_by_arrow_keys(world: World, browser: Browser) -> None:
    async with served(world.front.app) as url, watched(await opened(browser, url, "light")) as page:
        await page.clock.set_fixed_time(NIGHT)
        await log_in(world.front, page, "viewer", "/")
        chart = page.locator("#chart-depth")
        caption, slices = chart.locator("figcaption"), chart.locator(".slice")
        present = await caption.inner_text()
        rows = [await row.locator("td").all_text_contents() for row in await chart.locator("tbody tr").all()]
        assert len(rows) == await slices.count()

        await slices.nth(12).hover(force=True)
        when, depth, webhooks, stuck = rows[12]
        await expect(caption).to_have_text(
            re.compile(rf"queue depth {depth}\s*webhooks {webhooks}\s*stuck {stuck}\s+{when} to {rows[11][0][-5:]}")
        )
        await page.mouse.move(0, 0)
        await expect(caption).to_have_text(present, use_inner_text=True)

        await chart.locator("svg.lines").focus()
        for key, place in (("End", 0), ("ArrowLeft", 1), ("Home", len(rows) - 1), ("ArrowRight", len(rows) - 2)):
            await page.keyboard.press(key)
            await expect(caption).to_contain_text(f"{rows[place][0]} to ")
        await page.evaluate("document.activeElement.blur()")
        await expect(caption).to_have_text(present, use_inner_text=True)


async def _judged(page: Page, address: Address) -> list[str]:
    """What is wrong with it by day; of a page as it is, also by night and on a phone."""
    await page.clock.set_fixed_time(NIGHT)
    answer = await page.goto(address.path)
    assert answer is not None
    # A filter that is wrong is part of the walk: it answers 422 and says what is wrong with it.
    assert answer.status in (200, 422), f"{address.path} answered {answer.status}"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    found = []
    if (wider_by := await page.evaluate(TOO_WIDE)) > 0:
        found.append(f"the whole page is {wider_by} px wider than the window")
    await page.evaluate(SHORTEN)
    await page.evaluate(AXE.read_text())
    for form in FORMS if address.is_first else ("light",):
        scheme, width, height = FORMS[form]
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": height})
        found += [f"{form}: {told}" for told in await page.evaluate(JUDGE, WHICH[form])]
        if (wider_by := await page.evaluate(TOO_WIDE)) > 0:
            found.append(f"{form}: the page is {wider_by} px wider than the window")
        found += [f"{form}: hidden in the menu: {name}" for name in await page.evaluate(HIDDEN_IN_MENU)]
        found += [f"{form}: lower than 24 px: {name}" for name in await page.evaluate(LOW_BUTTONS)]
    _, width, height = FORMS["light"]
    for less in BETWEEN if address.is_first else ():
        await page.set_viewport_size({"width": less, "height": height})
        if (wider_by := await page.evaluate(TOO_WIDE)) > 0:
            found.append(f"{wider_by} px wider than a window of {less} px")
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme="light")
    return found
