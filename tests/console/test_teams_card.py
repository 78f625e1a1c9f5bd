"""The card of a notification, in the official renderer of Adaptive Cards: it shows the text exactly."""

import json
from pathlib import Path

import pytest
from playwright.async_api import Browser

from fieldpost.central.adapters.teams.card import teams_card
from fieldpost.testing.world import World, envelope

RENDERER = Path(__file__).parent.parent / "support/vendor/adaptivecards.min.js"
WORLD = World({}, ("a", "b"), list)
HOSTILE = (
    "**bold** _it_ `code` [link](https://x.example) ~~s~~\n# heading\n- item\n1. one\n> quote",
    "<script>alert(1)</script> <b>x</b> &amp; &lt; <at>Ann</at> <img src=x onerror=alert(1)>",
    "{{DATE(2026-11-15T08:00:00Z, SHORT)}} {{TIME(2026-11-15T08:00:00Z)}} {{{{DATE(2026-11-15T08:00:00Z)}}",
    "${title} @{triggerBody()} $data %s {0}",
    "first\nsecond\n\nfourth\r\nfifth",
    "😀 Grüße, Ελλάδα, мир, 日本, e\u0301",
)


@pytest.mark.req("CHN-06")
async def test_the_official_renderer_shows_the_text_exactly(browser: Browser) -> None:
    page = await browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.set_content("<!doctype html><body></body>")
    await page.add_script_tag(path=RENDERER)
    for text in HOSTILE:
        subject = text.splitlines()[0]
        message = json.loads(teams_card(envelope(WORLD, subject=subject, body=text)).message)
        shown = await page.evaluate(
            """card => {
                const rendering = new AdaptiveCards.AdaptiveCard();
                rendering.parse(card);
                document.body.replaceChildren(rendering.render());
                return [...document.querySelectorAll('.ac-richTextBlock')].map(block => block.innerText);
            }""",
            message["attachments"][0]["content"],
        )
        assert [line.replace("\r\n", "\n") for line in shown[:2]] == [subject, text.replace("\r\n", "\n")]
        assert await page.evaluate("document.querySelectorAll('script, img, b, a').length") == 1, (
            "only the script of the renderer"
        )
    assert dialogs == []
    await page.close()
