"""Text messages through a real Kannel: they arrive whole, in every alphabet, and their receipts are understood."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.sms.text import sms_text
from fieldpost.core.delivery.outcome import Delivered, Held
from fieldpost.core.delivery.receipt import Callback, ReceiptStatus
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.core.sms.segments import segments_of
from fieldpost.testing import HttpServer, World
from fieldpost.testing.world import envelope
from support.kannel import PASSWORD, USERNAME, Kannel, running_kannel
from support.need import need

NUMBER = "+4915112345678"
BODIES = ("Pump 3 is hot. ", "Grüße, 93 °C, 5 €. ", "Насос 3 горячий. ", "Pump 3 🔥🔥. ", "[x] {y} ~z^ \\ | ")


@pytest.fixture(scope="module")
def kannel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kannel]:
    need("kannel")
    folder: Path = tmp_path_factory.mktemp("kannel")
    with running_kannel(folder) as running:
        yield running


@pytest.fixture
async def adapter() -> AsyncIterator[SmsAdapter]:
    made = SmsAdapter()
    yield made
    await made.close()


def to(kannel: Kannel, password: str = PASSWORD) -> World:
    settings = {"dialect": "kannel", "url": kannel.url, "username": USERNAME, "password": Secret(password)}
    return World(settings, (NUMBER,), list)


@pytest.mark.req("CHN-05", "CHN-07")
async def test_five_hundred_texts_of_one_to_three_segments_arrive_complete_in_every_alphabet(
    kannel: Kannel, adapter: SmsAdapter
) -> None:
    sent = []
    for number in range(500):
        one = envelope(
            to(kannel),
            subject="Alarm",
            body=BODIES[number % len(BODIES)] * (1 + number % 13),
            notification_id=NotificationId(f"0198c8a0-0000-7000-8000-{number:012}"),
            targets=(phone := f"+49151{number:08}",),
        )
        outcome = await adapter.deliver(one)
        assert [target.status for target in outcome.targets] == [TargetStatus.ACCEPTED], outcome
        sent.append((phone, sms_text(one, 3).message))
    assert {segments_of(text) for _, text in sent} == {1, 2, 3}
    assert sorted(kannel.arrived(500)) == sorted(sent)


@pytest.mark.dec("DEC-89")
async def test_receipt_is_sent_to_the_url_of_the_target(kannel: Kannel, adapter: SmsAdapter) -> None:
    async with HttpServer() as central:
        url = f"{central.url}/receipts/v1/texts/canary-token"
        outcome = await adapter.deliver(envelope(to(kannel), body="x", receipt_urls={NUMBER: url}))
        assert isinstance(outcome, Delivered), outcome
        await central.until(lambda: any("status=1&" in one.query for one in central.requests), what="the receipt")
        received = {ReceiptStatus.IN_TRANSIT: 0, ReceiptStatus.DELIVERED: 0}
        for one in central.requests:
            query = dict(pair.split("=", 1) for pair in one.query.split("&"))
            callback = Callback(method=one.method, url=url, headers=one.headers, query=query, body=one.body)
            received[adapter.read_callback(to(kannel).settings, callback).status] += 1
            assert one.path == "/receipts/v1/texts/canary-token"
    assert received[ReceiptStatus.DELIVERED] == 1


async def test_a_wrong_password_holds_the_channel(kannel: Kannel, adapter: SmsAdapter) -> None:
    outcome = await adapter.deliver(envelope(to(kannel, "canary-wrong")))
    assert isinstance(outcome, Held)
    assert "Kannel rejected user name or password: 403" in outcome.error
    assert "canary" not in repr(outcome)
