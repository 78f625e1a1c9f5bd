"""The console's stage: one Chromium for all tests, a fresh context for each.

    front        central as it is reached, on a SQLite file
    url          where it is served
    browser      the shared Chromium; whatever a test opens in it is closed after the test
    page         a page of the console on which nothing may go wrong
    scriptless   the same with scripts blocked

What speaks to the browser must run on the loop that started it. So these tests share one loop, and an asynchronous
fixture of theirs says `@on_shared_loop` (support/console.py) where another would say `@pytest.fixture`.
"""

from collections.abc import AsyncIterator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from fieldpost.testing import ManualClock
from support.console import on_shared_loop, watched
from support.front import Front, open_front, served

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
# A change that comes just before a page listens is seen when the page asks by itself, after a quarter of a minute.
expect.set_options(timeout=40_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_ours = item.path.is_relative_to(Path(__file__).parent)
        if is_ours and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(chromium_path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium_path, args=ARGUMENTS)
        yield launched
        await launched.close()


@on_shared_loop
async def browser(chromium: Browser) -> AsyncIterator[Browser]:
    yield chromium
    for context in chromium.contexts:
        await context.close()


@on_shared_loop
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


@on_shared_loop
async def url(front: Front) -> AsyncIterator[str]:
    async with served(front.app) as served_at:
        yield served_at


@on_shared_loop
async def page(browser: Browser, url: str) -> AsyncIterator[Page]:
    async with watched(await browser.new_context(base_url=url)) as opened:
        yield opened


@on_shared_loop
async def scriptless(browser: Browser, url: str) -> AsyncIterator[Page]:
    async with watched(await browser.new_context(base_url=url, java_script_enabled=False)) as opened:
        yield opened
