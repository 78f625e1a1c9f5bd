"""The mail catcher's web inbox, asked over HTTP."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import aiosmtplib
import pytest

from fieldpost.demo.inbox import PAGE_ROWS, Inbox
from fieldpost.demo.mail_store import MailStore
from fieldpost.testing import MailServer, ReceivedMail

ID = "01a1de5e-a8bc-7d06-9562-d3c640a05eaa"
MAIL = ReceivedMail(
    number=1,
    connection=1,
    sender="alarms@plant.example",
    recipients=("ops@plant.example",),
    received_at=datetime(2026, 11, 15, 8, 12, 31, 250_000, tzinfo=UTC),
    raw=(
        f"Subject: =?utf-8?q?K=C3=BChlung?= 3\r\nFrom: Pumps <alarms@plant.example>\r\nX-Fieldpost-Id: {ID}\r\n"
        f"Message-ID: <{ID}@plant>\r\n\r\nGröße 3\r\n"
    ).encode(),
)


class Mailbox:
    """A mailbox a test can fill."""

    def __init__(self) -> None:
        self.mails: list[ReceivedMail] = []

    def add(self, *recipients: str, **changes: object) -> None:
        changed = replace(MAIL, number=len(self.mails) + 1, **changes)  # type: ignore[arg-type]
        self.mails.append(replace(changed, recipients=recipients or changed.recipients))


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
async def browser(mailbox: Mailbox) -> AsyncIterator[aiohttp.ClientSession]:
    inbox = Inbox(mailbox, "http://console.example/", "127.0.0.1:1025")
    async with inbox.listening() as url, aiohttp.ClientSession(url) as session:
        yield session


async def text_of(browser: aiohttp.ClientSession, path: str, status: int = 200) -> str:
    async with browser.get(path) as response:
        assert response.status == status
        return await response.text()


async def test_empty_inbox_explains_how_to_fill_it(browser: aiohttp.ClientSession) -> None:
    page = await text_of(browser, "/")
    assert "No message yet" in page
    assert "127.0.0.1:1025" in page


async def test_list_shows_each_mail_with_a_link_to_the_console(
    mailbox: Mailbox, browser: aiohttp.ClientSession
) -> None:
    mailbox.add("ops@plant.example", "night@plant.example")
    page = await text_of(browser, "/")
    for shown in (
        "15 Nov 08:12:31",
        "Pumps &lt;alarms@plant.example&gt;",
        "ops@plant.example",
        "+1",
        '<a href="/mails/1">Kühlung 3</a>',
        f'href="http://console.example/notifications/{ID}"',
        "Inbox (1)",
    ):
        assert shown in page


async def test_the_newest_mail_comes_first_and_older_ones_on_further_pages(
    mailbox: Mailbox, browser: aiohttp.ClientSession
) -> None:
    for _ in range(PAGE_ROWS + 5):
        mailbox.add()
    first = await text_of(browser, "/")
    assert first.index(f'"/mails/{PAGE_ROWS + 5}"') < first.index('"/mails/6"')
    assert '"/mails/5"' not in first
    assert 'href="/?before=6"' in first
    second = await text_of(browser, "/?before=6")
    assert second.count("data-number=") == 5
    assert "Older messages" not in second
    assert "back to the newest" in second


async def test_filter_keeps_mails_of_the_address(mailbox: Mailbox, browser: aiohttp.ClientSession) -> None:
    mailbox.add("ops@plant.example")
    mailbox.add("ops@plant.example", "Night@plant.example")
    mailbox.add("night@plant.example", sender="ops@plant.example")
    page = await text_of(browser, "/?address=nIGHT@")
    assert ('"/mails/1"' in page, '"/mails/2"' in page, '"/mails/3"' in page) == (False, True, True)
    assert 'value="nIGHT@"' in page
    # Of several recipients the one that was asked for is shown.
    assert page.index("Night@plant.example") < page.index("+1")
    assert 'data-number="3"' in await text_of(browser, "/?address=ops@")
    assert "No message concerns “nobody”" in await text_of(browser, "/?address=nobody")


async def test_a_mail_is_shown_with_its_text_its_headers_and_its_source(
    mailbox: Mailbox, browser: aiohttp.ClientSession
) -> None:
    for _ in range(3):
        mailbox.add("ops@plant.example", "night@plant.example")
    page = await text_of(browser, "/mails/2")
    for shown in (
        "<h1>Kühlung 3</h1>",
        "2026-11-15 08:12:31 UTC",
        "night@plant.example",
        '<pre class="text">Größe 3\n</pre>',
        f"<td>&lt;{ID}@plant&gt;</td>",
        "Subject: =?utf-8?q?K=C3=BChlung?= 3",
        'href="/mails/1"',
        'href="/mails/3"',
    ):
        assert shown in page


@pytest.mark.parametrize("path", ["/", "/mails/1", "/?address=%3Cimg%3E", "/mails/9", "/?before=%3Cimg%3E"])
async def test_mail_and_query_are_never_markup(mailbox: Mailbox, browser: aiohttp.ClientSession, path: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    raw = f'Subject: {evil}\r\nFrom: "{evil}" <a@x.example>\r\n{evil}: 1\r\nX-Fieldpost-Id: {evil}\r\n\r\n{evil}\r\n'
    mailbox.add(f'"{evil}"@x.example', raw=raw.encode(), sender=evil)
    async with browser.get(path) as response:
        page = await response.text()
        policy = response.headers["Content-Security-Policy"]
    assert "<img src=x" not in page
    assert "<img>" not in page
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_invalid_id_header_is_not_linked(mailbox: Mailbox, browser: aiohttp.ClientSession) -> None:
    mailbox.add(raw=b"X-Fieldpost-Id: ../../logout\r\n\r\n")
    assert "/notifications/" not in await text_of(browser, "/") + await text_of(browser, "/mails/1")


async def test_machines_read_json(mailbox: Mailbox, browser: aiohttp.ClientSession) -> None:
    mailbox.add()
    mailbox.add("night@plant.example", raw=b"\r\n")
    async with browser.get("/mails.json") as response:
        assert await response.json() == {
            "mails": [
                {
                    "number": 2,
                    "kind": "mail",
                    "received_at": "2026-11-15T08:12:31.250000Z",
                    "sender": "alarms@plant.example",
                    "recipients": ["night@plant.example"],
                    "subject": "",
                    "message_id": None,
                    "x_fieldpost_id": None,
                },
                {
                    "number": 1,
                    "kind": "mail",
                    "received_at": "2026-11-15T08:12:31.250000Z",
                    "sender": "Pumps <alarms@plant.example>",
                    "recipients": ["ops@plant.example"],
                    "subject": "Kühlung 3",
                    "message_id": f"<{ID}@plant>",
                    "x_fieldpost_id": ID,
                },
            ]
        }
    async with browser.get("/mails.json?address=night") as response:
        assert [mail["number"] for mail in (await response.json())["mails"]] == [2]
    async with browser.get("/mails.json?before=2") as response:
        assert [mail["number"] for mail in (await response.json())["mails"]] == [1]


async def test_unchanged_page_is_not_sent_again(mailbox: Mailbox, browser: aiohttp.ClientSession) -> None:
    mailbox.add()
    async with browser.get("/") as response:
        known = {"If-None-Match": response.headers["ETag"]}
    async with browser.get("/", headers=known) as response:
        assert (response.status, await response.read()) == (304, b"")
    mailbox.add()
    async with browser.get("/", headers=known) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/mails/7", 404, "Message 7 does not exist"),
        ("/?before=x", 400, "before: the number of a message"),
        ("/?before=-1", 400, "before: the number of a message"),
        (f"/?address={'a' * 321}", 400, "address: at most 320 characters"),
        ("/mails.json?before=x", 400, "before: the number of a message"),
    ],
)
async def test_invalid_requests_are_rejected_with_the_reason(
    browser: aiohttp.ClientSession, path: str, status: int, reason: str
) -> None:
    assert reason in await text_of(browser, path, status)


async def test_a_mail_is_in_the_inbox_once_the_sender_hears_250(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("demo") / "mails.jsonl"
    for count in (1, 2):  # the second time after a restart
        with MailStore(path) as store:
            async with (
                MailServer(on_mail=store.add) as server,
                Inbox(store).listening() as url,
                aiohttp.ClientSession(url) as browser,
            ):
                await aiosmtplib.send(
                    MAIL.raw,
                    sender="a@x.example",
                    recipients=["b@x.example"],
                    hostname=server.host,
                    port=server.port,
                    start_tls=False,
                )
                assert f"Inbox ({count})" in await text_of(browser, "/")


@pytest.mark.threat(30)
async def test_host_other_than_this_machine_is_rejected(mailbox: Mailbox, browser: aiohttp.ClientSession) -> None:
    """A web page could otherwise read the mails of a demo by DNS rebinding."""
    mailbox.add()
    for host, status in (("evil.example", 403), ("10.0.0.7", 403), ("localhost:8027", 200), ("[::1]", 200)):
        for path in ("/", "/mails.json", "/mails/1", "/static/inbox.css"):
            async with browser.get(path, headers={"Host": host}) as response:
                assert response.status == status, (host, path)
                assert status == 200 or "plant.example" not in await response.text()
