"""The page of a site with two nodes: before, during and after a failover."""

import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from fieldpost.core.times import to_text
from fieldpost.link.messages import Health, PairHealth
from support.centre import SITE
from support.console import log_in
from support.front import ADMIN, Front
from support.pair_links import LinkNode, link_node, pair_tokens

pytestmark = [pytest.mark.req("DEC-38", "DEC-39")]


async def report(link: LinkNode, front: Front, node: int, epoch: int, **pair: object) -> None:
    """A health report of a node; the leader's is of an epoch of its parity."""
    is_leading = epoch % 2 == node
    given: dict[str, object] = {"peer_age_s": 0.4, "grounds": "lease" if is_leading else None} | pair
    told = PairHealth(node=node, held=epoch, known=epoch, is_leading=is_leading, **given)  # type: ignore[arg-type]
    sent_at = to_text(front.clock.now())
    await link.send(Health(sent_at=sent_at, version="1.2.3", backlog={}, disk_free_bytes=41_000_000_000, pair=told))
    await link.give_back(node)  # not held: answered after the report, and nothing else


async def picture(page: Page, name: str) -> None:
    """Pictures for people, in the folder that PICTURES names: light, dark and on a phone."""
    if (folder := os.environ.get("PICTURES")) is None:
        return
    for form, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": 800})
        await page.screenshot(path=Path(folder) / f"{name}-{form}.png", full_page=True)
    await page.set_viewport_size({"width": 1280, "height": 800})


async def test_page_follows_a_failover(front: Front, url: str, page: Page) -> None:
    first, second = await pair_tokens(front)
    row = [page.locator(f"#n-{number}") for number in (0, 1)]
    async with link_node(url, second) as two:
        async with link_node(url, first) as one:
            await one.ask(known=1)
            await report(one, front, 0, 2)
            await report(two, front, 1, 2)
            await log_in(front, page, "admin")
            await page.goto(f"/sites/{SITE}")
            await expect(row[0]).to_contain_text("leader")
            await expect(row[1]).to_contain_text("standby")
            await expect(page.locator("#s-2")).to_contain_text("granted by central")
            await picture(page, "pair-before")
        # Node 0 dies: it does not report any more, and its lease ends.
        front.clock.advance(61)
        await report(two, front, 1, 2, peer_age_s=61.0)
        await expect(row[0]).to_contain_text("offline")
        await expect(page.get_by_role("heading", level=1)).to_contain_text(SITE)
        await picture(page, "pair-during")
        await two.ask(known=2)
        await report(two, front, 1, 3, peer_age_s=62.0, lag_changes=12, lag_s=61.0, differences=("external.erp",))
        await expect(row[1]).to_contain_text("leader")
        await expect(row[1]).to_contain_text("12 changes")
        await expect(page.locator("#s-3")).to_contain_text("Node 1")
        await picture(page, "pair-after")
        front.clock.advance(5)  # the Health page shows a reading that is some seconds old
        await page.goto("/")
        await expect(page.get_by_text(f"Node 0, the standby of {SITE}, has not reported for 1 min.")).to_be_visible()
        await page.get_by_text(f"The standby of {SITE} lags by 1 min (12 changes).").click()
        await expect(page).to_have_url(f"{url}/sites/{SITE}#nodes")
        async with link_node(url, first) as one:
            await report(one, front, 0, 3)
            await report(two, front, 1, 3)
            await expect(row[0]).to_contain_text("online")
            await expect(row[0]).to_contain_text("standby")


async def test_second_node_is_added_and_removed_on_the_page(front: Front, page: Page) -> None:
    await log_in(front, page, "admin")
    await page.goto(f"/sites/{SITE}")
    await page.get_by_role("link", name="Add a node…").click()
    await picture(page, "pair-add-node")
    await page.get_by_role("button", name="Add node").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Enrol {SITE}, node 1")
    await expect(page.locator(".once code")).to_contain_text("fieldpost site join fp_join_")
    await page.get_by_role("link", name="Go to the site").click()
    await expect(page.locator("#n-1")).to_contain_text("not enrolled yet")
    await page.get_by_role("link", name="Remove node 1…").click()
    await page.get_by_role("button", name="Remove", exact=True).click()
    await expect(page.get_by_text("Node removed: central rejects everything it sends.")).to_be_visible()
    await expect(page.get_by_role("link", name="Add a node…")).to_be_visible()
    assert (await front.operate.sites.add_node(ADMIN, SITE)).node == 1
