"""Text messages from claim to receipt: Twilio is asked and calls back, and a real Kannel calls back."""

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.ingest.receipts import ReceiptIngest
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Outcome
from fieldpost.core.delivery.receipt import Callback
from fieldpost.core.errors import Denied, NotFound
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import HttpServer, ManualClock
from fieldpost.testing.providers import FakeKannel, FakeTwilio
from support.centre import Centre
from support.front import ADMIN
from support.kannel import PASSWORD, USERNAME, running_kannel
from support.need import need

ACCOUNT, TOKEN = "AC" + "0123456789abcdef" * 2, "canary-of-the-auth-token"
NUMBERS = ("+4915112345678", "+4915112345679")


class RecordingSms(SmsAdapter):
    """The adapter itself; it notes each envelope, and the receipt URLs of accepted targets."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []
        self.accepted: list[str] = []

    @property
    def count(self) -> int:
        return len(self.envelopes)

    async def deliver(self, envelope: Envelope) -> Outcome:
        self.envelopes.append(envelope)
        outcome = await super().deliver(envelope)
        reached = [target.address for target in outcome.targets if target.status is TargetStatus.ACCEPTED]
        self.accepted += [envelope.receipt_urls[one] for one in reached if one in envelope.receipt_urls]
        return outcome


@pytest.fixture
async def sms(centre: Centre) -> AsyncIterator[RecordingSms]:
    adapter = RecordingSms()
    centre.adapter = adapter  # type: ignore[assignment]
    centre.adapters["sms"] = adapter
    yield adapter
    await adapter.close()


async def set_up(centre: Centre, settings: dict[str, object], password: str, **channel: Any) -> None:
    operate = Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)
    await operate.channels.add(ADMIN, "texts", "sms", settings, {"password": password}, is_default=True, **channel)
    await operate.lists.add(ADMIN, ListSpec(name="duty", type="sms", targets=list(NUMBERS)))


async def pass_time(centre: Centre, clock: ManualClock, seconds: float, public_url: str) -> None:
    """Time passes, then a node sweeps twice: the first asks, the second applies."""
    clock.advance(seconds)
    node = centre.dispatcher()
    node._receipts.public_url = public_url
    async with node.running():
        for _ in range(2):
            clock.advance(1)
            await centre.drain(node)
            await node._receipts.idle()
            await node._receipts.apply()


@pytest.mark.req("CHN-08")
@pytest.mark.dec("DEC-61")
async def test_twilio_is_polled_and_calls_back(centre: Centre, clock: ManualClock, sms: RecordingSms) -> None:
    public = "https://fieldpost.example"
    async with FakeTwilio(ACCOUNT, TOKEN) as twilio:
        settings = {"dialect": "twilio", "url": twilio.url, "username": ACCOUNT, "sender": "+15005550006"}
        await set_up(centre, settings, TOKEN)
        sent = await centre.send("duty")
        await pass_time(centre, clock, 0, public)
        n = await centre.get(sent)
        assert (n.status.is_terminal, {t.status for t in n.targets}) == (False, {TargetStatus.ACCEPTED})
        asked, called = (str(target.provider_id) for target in n.targets)
        twilio.settle(asked, "undelivered", 30003)
        await pass_time(centre, clock, 10, public)
        await pass_time(centre, clock, 120, public)
        assert [e.targets for e in sms.envelopes] == [NUMBERS, NUMBERS[:1]], "unreachable: sent again, to it alone"
        n = await centre.get(sent)
        twilio.settle(str(n.targets[0].provider_id), "delivered")
        await pass_time(centre, clock, 30, public)
        ingest = ReceiptIngest(centre.store, centre.adapters, centre.keyring)
        url = sms.envelopes[0].receipt_urls[NUMBERS[1]]
        *_, channel, token = urlsplit(url).path.split("/")
        twilio.settle(called, "delivered")
        callback = twilio.callback(called, url)
        with pytest.raises(Denied):
            await ingest.receive(channel, token, Callback(method="POST", url=url, headers={}, query={}, body=b"a=b"))
        await ingest.receive(channel, token, callback)
        await pass_time(centre, clock, 1, public)
    assert (await centre.get(sent)).status is Status.DELIVERED


@pytest.mark.dec("DEC-89")
async def test_a_receipt_of_kannel_delivers_the_notification(
    centre: Centre, clock: ManualClock, sms: RecordingSms, tmp_path: Path
) -> None:
    need("kannel")
    with running_kannel(tmp_path) as kannel:
        async with HttpServer() as public:
            await set_up(centre, {"dialect": "kannel", "url": kannel.url, "username": USERNAME}, PASSWORD)
            sent = await centre.send("duty")
            await pass_time(centre, clock, 0, public.url)
            assert {t.status for t in (await centre.get(sent)).targets} == {TargetStatus.ACCEPTED}
            reached = lambda: {r.path for r in public.requests if "status=1&" in r.query}  # noqa: E731
            await public.until(lambda: len(reached()) == len(NUMBERS), what="both receipts")
            for path, query in receipts_at(public):
                await receive(centre, path, query)
            await pass_time(centre, clock, 1, public.url)
        assert sorted(number for number, _ in kannel.arrived(2)) == sorted(NUMBERS)
    assert (await centre.get(sent)).status is Status.DELIVERED


@pytest.mark.req("CHN-08", "CHN-09")
@pytest.mark.dec("DEC-61", "DEC-89")
@pytest.mark.timeout(240)
async def test_no_text_is_lost_when_kannel_is_killed_and_restarted(
    centre: Centre, clock: ManualClock, sms: RecordingSms, tmp_path: Path
) -> None:
    need("kannel")
    with running_kannel(tmp_path) as kannel:
        async with HttpServer() as public:
            settings = {"dialect": "kannel", "url": kannel.url, "username": USERNAME}
            rule = {"receipt_missing": "retry", "receipt_wait_s": 60, "max_retries": 20, "retry_delay_s": 10}
            await set_up(centre, settings, PASSWORD, **rule)
            fed = 0

            async def settle() -> None:
                """Let the receipts of all accepted messages come, and apply them."""
                nonlocal fed
                wanted = {urlsplit(url).path for url in sms.accepted[fed:]}
                arrived = lambda: {path for path, query in receipts_at(public) if query["status"] == "1"}  # noqa: E731
                await public.until(lambda: wanted <= arrived(), timeout_s=60, what="the receipts")
                fed = len(sms.accepted)
                for path, query in receipts_at(public):
                    if path in wanted:
                        await receive(centre, path, query)

            sent = await centre.send_many(10, "duty")
            await pass_time(centre, clock, 0, public.url)
            await settle()
            kannel.detach_network()
            sent += await centre.send_many(10, "duty")
            await pass_time(centre, clock, 0, public.url)
            assert len(sms.accepted) == 20 * len(NUMBERS), "Kannel accepts what it cannot send yet"
            kannel.stop(kill=True)
            fed = len(sms.accepted)
            sent += await centre.send_many(10, "duty")
            await pass_time(centre, clock, 0, public.url)
            assert len(sms.accepted) == fed
            kannel.start()
            for _ in range(40):
                await pass_time(centre, clock, 61, public.url)
                await settle()
                if await centre.rows("select distinct status from notifications") == [("delivered",)]:
                    break
            assert await centre.rows("select distinct status from notifications") == [("delivered",)]
        texts = kannel.arrived(len(sent) * len(NUMBERS))
        arrived = {(number, re.findall(r"[0-9a-f-]{36}", text)[-1]) for number, text in texts}
    assert arrived == {(number, one) for one in sent for number in NUMBERS}, "lost none"


@pytest.mark.req("CHN-08", "CHN-10")
@pytest.mark.dec("DEC-61", "DEC-89")
@pytest.mark.parametrize(("status", "words"), [(2, "could not deliver it"), (16, "rejected it")])
async def test_a_number_that_kannel_reports_as_undeliverable_parks_naming_it(
    centre: Centre, clock: ManualClock, sms: RecordingSms, status: int, words: str
) -> None:
    public = "https://fieldpost.example"
    async with FakeKannel(USERNAME, PASSWORD) as kannel:
        url = f"{kannel.url}/cgi-bin/sendsms"
        await set_up(centre, {"dialect": "kannel", "url": url, "username": USERNAME}, PASSWORD)
        sent = await centre.send("duty")
        await pass_time(centre, clock, 0, public)
        reports = [(NUMBERS[0], 8, ""), (NUMBERS[1], 4, ""), (NUMBERS[1], 1, ""), (NUMBERS[0], status, "NACK/11")]
        for number, reported, said in reports:
            assert not (await centre.get(sent)).status.is_terminal
            callback = kannel.receipt(number, reported, said)
            await receive(centre, urlsplit(callback.url).path, dict(callback.query))
            await pass_time(centre, clock, 1, public)
        parked = await centre.get(sent)
        assert (parked.status, parked.last_error) == (
            Status.PARKED,
            f"{NUMBERS[0]}: the network {words}: NACK/11",
        )
        assert await centre.retry(sent)
        await pass_time(centre, clock, 1, public)
        assert [e.targets for e in sms.envelopes] == [NUMBERS, NUMBERS[:1]], "Retry goes to that number alone"


@pytest.mark.req("CHN-09")
@pytest.mark.dec("DEC-89")
async def test_without_a_public_url_kannel_is_asked_for_no_receipt_and_the_rule_decides(
    centre: Centre, clock: ManualClock, sms: RecordingSms
) -> None:
    async with FakeKannel(USERNAME, PASSWORD) as kannel:
        kannel.is_network_away = True
        url = f"{kannel.url}/cgi-bin/sendsms"
        await set_up(centre, {"dialect": "kannel", "url": url, "username": USERNAME}, PASSWORD, receipt_wait_s=60)
        sent = await centre.send("duty")
        await pass_time(centre, clock, 0, "")
        assert {t.status for t in (await centre.get(sent)).targets} == {TargetStatus.ACCEPTED}
        assert (len(kannel.copies), kannel.receipt_urls) == (len(NUMBERS), {})
        await pass_time(centre, clock, 61, "")
    n = await centre.get(sent)
    assert (n.status, {t.error for t in n.targets}) == (Status.DELIVERED, {"no receipt within 60 s"})


def receipts_at(public: HttpServer) -> list[tuple[str, dict[str, str]]]:
    """Path and query of the receipts that came to the public URL."""
    return [(one.path, dict(parse_qsl(one.query, keep_blank_values=True))) for one in public.requests]


async def receive(centre: Centre, path: str, query: dict[str, str]) -> None:
    """What central does with a receipt of Kannel; the token of an earlier attempt is not known any more."""
    *_, channel, token = path.split("/")
    given = Callback(method="GET", url=f"https://fieldpost.example{path}", headers={}, query=query, body=b"")
    with contextlib.suppress(NotFound):
        await ReceiptIngest(centre.store, centre.adapters, centre.keyring).receive(channel, token, given)
