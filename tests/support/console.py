"""What a person does at the console in the browser, and the page on which nothing may go wrong meanwhile."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

import pytest_asyncio
from playwright.async_api import BrowserContext, Dialog, Page

from support.front import Front

on_shared_loop = pytest_asyncio.fixture(loop_scope="session")
"""An asynchronous fixture of the console's tests: they share the loop on which their browser was started."""


@asynccontextmanager
async def watched(context: BrowserContext) -> AsyncIterator[Page]:
    """A page on which nothing may go wrong: what the content security policy stops would be told here."""
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    yield page
    await context.close()
    # That a login or a form was refused the browser notes by itself, and it has views on forms with two passwords.
    wrong = [text for text in complaints if not re.search(r"status of (401|422)|^\[DOM\]", text)]
    assert not wrong, wrong


async def log_in(front: Front, page: Page, name: str, path: str = "/") -> None:
    """As this person, to the page that he wanted."""
    await page.goto(f"/login?{urlencode({'next': path})}")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(front.password(name))
    await page.get_by_role("button", name="Log in").click()
    # The page that was asked for, or the one that says why not; loaded, so that what follows finds all of it.
    await page.wait_for_url(lambda url: urlsplit(url).path != "/login")


async def answer(dialog: Dialog, is_yes: bool, asked: list[str]) -> None:
    """Say yes or no to a question of the browser, and note what was asked."""
    asked.append(dialog.message)
    await (dialog.accept() if is_yes else dialog.dismiss())


async def expect_fit_and_contrast(page: Page) -> None:
    """No text below the contrast that WCAG 2 AA asks for, and nothing that makes the page scroll sideways."""
    await page.wait_for_load_state()
    assert await page.evaluate(CONTRAST) == []
    assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


# The contrast of every piece of text with what lies behind it, as WCAG 2 computes it; those below AA.
CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] === 255) return color;
    }
    return rgba("white");
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const [a, b] = [luminance(rgba(getComputedStyle(element).color)), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([walker.currentNode.data.trim().slice(0, 40), element.className, ratio]);
  }
  return poor;
}
"""
