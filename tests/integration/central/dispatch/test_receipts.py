"""Receipts: accepted targets are settled by them, whenever and however often they arrive, or by the channel's rule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.receipts import ReceiptIngest
from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Outcome, fold
from fieldpost.core.delivery.receipt import Callback, Receipt, ReceiptMissing, ReceiptStatus
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.notification import Notification, Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter

ACCEPTED, DUE = TargetStatus.ACCEPTED, TargetStatus.DUE
NUMBERS = ("+31600000001", "+31600000002")


class SmsAdapter(ScriptedAdapter):
    """Accepts every target, and reports when it is asked or called back."""

    can_ask = True

    def __init__(self) -> None:
        super().__init__("sms")
        self.reports: dict[str, ReceiptStatus] = {}
        self.asked: list[Sequence[str]] = []

    async def deliver(self, envelope: Envelope) -> Outcome:
        await super().deliver(envelope)
        count = len(self.envelopes)
        return fold(tuple(Target(one, ACCEPTED, provider_id=f"{one}-{count}") for one in envelope.targets))

    async def ask(self, settings: Mapping[str, object], provider_ids: Sequence[str]) -> Sequence[Receipt]:
        self.asked.append(provider_ids)
        return [self.receipt(one) for one in provider_ids if one in self.reports]

    def receipt(self, provider_id: str) -> Receipt:
        status = self.reports[provider_id]
        return Receipt(provider_id=provider_id, status=status, error=None if status == "delivered" else "unreachable")

    def read_callback(self, settings: Mapping[str, object], callback: Callback) -> Receipt:
        if callback.body not in {status.value.encode() for status in ReceiptStatus}:
            raise InvalidInput("sms.status", "status is unknown", field="status")
        status = ReceiptStatus(callback.body.decode())
        return Receipt(provider_id="", status=status, error="unreachable")


class Sms:
    """A centre with an SMS channel, a list of two numbers and one node."""

    def __init__(self, centre: Centre, adapter: SmsAdapter, clock: ManualClock) -> None:
        self.centre, self.adapter, self.clock = centre, adapter, clock
        self.ingest = ReceiptIngest(centre.store, centre.adapters, centre.keyring)

    def node(self) -> Dispatcher:
        made = self.centre.dispatcher()
        made._receipts.public_url = "https://fieldpost.example"
        return made

    async def pass_time(self, seconds: float) -> None:
        """Time passes, then a node sweeps twice: the first asks, the second applies."""
        self.clock.advance(seconds)
        node = self.node()
        async with node.running():
            for _ in range(2):
                self.clock.advance(1)
                await self.centre.drain(node)
                await node._receipts.idle()
                await node._receipts.apply()

    async def sent(self) -> Notification:
        sent = await self.centre.send("duty")
        await self.pass_time(0)
        return await self.centre.get(sent)

    async def now(self, n: Notification) -> Notification:
        return await self.centre.get(n.notification_id)

    async def call_back(self, n: Notification, status: str, envelope: int = -1, address: str = NUMBERS[0]) -> None:
        url = self.adapter.envelopes[envelope].receipt_urls[address]
        *_, channel, token = urlsplit(url).path.split("/")
        given = Callback(method="POST", url=url, headers={}, query={}, body=status.encode())
        await self.ingest.receive(channel, token, given)

    async def rule(self, missing: ReceiptMissing, wait_s: float = 60) -> None:
        channel = await self.centre.store.read(lists.get_channel, "sms")
        assert channel is not None
        changed = replace(channel, receipt_missing=missing, receipt_wait_s=wait_s)
        assert await self.centre.store.write(lists.change_channel, changed, self.clock.now())


@pytest.fixture
async def sms(centre: Centre, clock: ManualClock) -> Sms:
    adapter = SmsAdapter()
    centre.adapter = adapter
    centre.adapters["sms"] = adapter
    await centre.add_channel("sms", type="sms")
    await centre.add_list("duty", *NUMBERS, type="sms")
    return Sms(centre, adapter, clock)


def statuses(n: Notification) -> list[str]:
    return [t.status.value for t in n.targets]


@pytest.mark.req("CHN-08", "DEC-61")
async def test_accepted_targets_are_polled_at_growing_intervals_and_settled_by_their_receipts(sms: Sms) -> None:
    await sms.rule(ReceiptMissing.DELIVERED, 3600)
    n = await sms.sent()
    assert (n.status, statuses(n)) == (Status.PENDING, ["accepted", "accepted"])
    assert [t.provider_id for t in n.targets] == [f"{one}-1" for one in NUMBERS]
    assert sms.adapter.asked == [], "polling begins after some seconds"
    for _ in range(20):
        await sms.pass_time(8)
    assert 4 <= len(sms.adapter.asked) <= 6, "at growing intervals"
    sms.adapter.reports = {f"{NUMBERS[0]}-1": ReceiptStatus.DELIVERED, f"{NUMBERS[1]}-1": ReceiptStatus.IN_TRANSIT}
    await sms.pass_time(160)
    assert statuses(await sms.now(n)) == ["delivered", "accepted"]
    await sms.call_back(n, "delivered", address=NUMBERS[1])
    await sms.pass_time(1)
    n = await sms.now(n)
    assert (n.status, n.retry_count, statuses(n)) == (Status.DELIVERED, 0, ["delivered", "delivered"])
    assert len(sms.adapter.envelopes) == 1, "nothing was sent twice"
    assert len(await sms.centre.attempts(n.notification_id)) == 1, "polling is not an attempt"


@pytest.mark.req("CHN-08", "DEC-61")
async def test_a_failed_receipt_parks_naming_the_number_and_one_that_is_due_again_is_retried(sms: Sms) -> None:
    n = await sms.sent()
    await sms.call_back(n, "delivered")
    await sms.call_back(n, "failed", address=NUMBERS[1])
    await sms.pass_time(1)
    parked = await sms.now(n)
    assert (parked.status, parked.last_error) == (Status.PARKED, f"{NUMBERS[1]}: unreachable")
    again = await sms.sent()
    await sms.call_back(again, "due")
    await sms.call_back(again, "delivered", address=NUMBERS[1])
    await sms.pass_time(1)
    waiting = await sms.now(again)
    assert (waiting.status, statuses(waiting)) == (Status.RETRYING, ["due", "delivered"])
    await sms.pass_time(61)
    assert [e.targets for e in sms.adapter.envelopes] == [NUMBERS, NUMBERS, NUMBERS[:1]]


@pytest.mark.req("CHN-10")
async def test_receipts_may_arrive_twice_late_and_in_any_order(sms: Sms) -> None:
    n = await sms.sent()
    for status in ("delivered", "in_transit", "failed", "delivered"):
        await sms.call_back(n, status)
    await sms.call_back(n, "delivered", address=NUMBERS[1])
    await sms.pass_time(1)
    assert (await sms.now(n)).status is Status.DELIVERED, "a final receipt is never undone"
    before = await sms.now(n)
    await sms.call_back(n, "failed")
    await sms.pass_time(1)
    assert await sms.now(n) == before
    late = (await sms.centre.audit(n.notification_id))[-1]
    assert (late.status, late.error_message) == ("skipped", f"late receipt, nothing changed: {NUMBERS[0]}: failed")


@pytest.mark.req("CHN-10")
async def test_a_final_receipt_is_not_undone_while_others_are_open(sms: Sms) -> None:
    n = await sms.sent()
    await sms.call_back(n, "delivered")
    await sms.pass_time(1)
    for status in ("failed", "due"):
        await sms.call_back(n, status)
        await sms.pass_time(1)
        assert statuses(await sms.now(n)) == ["delivered", "accepted"]
    words = [entry.error_message for entry in await sms.centre.audit(n.notification_id) if entry.status == "skipped"]
    assert words == [f"late receipt, nothing changed: {NUMBERS[0]}: {status}" for status in ("failed", "due")]
    await sms.call_back(n, "delivered", address=NUMBERS[1])
    await sms.pass_time(1)
    assert (await sms.now(n)).status is Status.DELIVERED
    assert len(sms.adapter.envelopes) == 1


@pytest.mark.req("CHN-09", "DEC-89")
@pytest.mark.parametrize("missing", list(ReceiptMissing))
async def test_without_a_receipt_the_rule_of_the_channel_decides(sms: Sms, missing: ReceiptMissing) -> None:
    await sms.rule(missing)
    n = await sms.sent()
    await sms.pass_time(30)
    assert statuses(await sms.now(n)) == ["accepted", "accepted"], "not before the wait is over"
    await sms.pass_time(40)
    n = await sms.now(n)
    remark = "no receipt within 60 s"
    match missing:
        case ReceiptMissing.DELIVERED:
            assert (n.status, {t.error for t in n.targets}) == (Status.DELIVERED, {remark})
        case ReceiptMissing.RETRY:
            assert (n.status, n.retry_count, statuses(n)) == (Status.RETRYING, 1, ["due", "due"])
            await sms.pass_time(60)
            assert len(sms.adapter.envelopes) == 2
        case ReceiptMissing.PARK:
            assert n.status is Status.PARKED
            assert remark in str(n.last_error)


@pytest.mark.req("CHN-10")
async def test_a_receipt_that_overtakes_the_end_of_its_attempt_counts(sms: Sms) -> None:
    deliver = SmsAdapter.deliver

    async def early(envelope: Envelope) -> Outcome:
        outcome = await deliver(sms.adapter, envelope)
        for number in NUMBERS:
            *_, channel, token = urlsplit(envelope.receipt_urls[number]).path.split("/")
            given = Callback(method="GET", url="", headers={}, query={}, body=b"delivered")
            await sms.ingest.receive(channel, token, given)
        return outcome

    sms.adapter.deliver = early  # type: ignore[method-assign]
    n = await sms.sent()
    await sms.pass_time(1)
    assert (await sms.now(n)).status is Status.DELIVERED


@pytest.mark.req("CHN-08")
async def test_a_wrong_foreign_or_used_token_or_an_unknown_status_changes_nothing(sms: Sms) -> None:
    n = await sms.sent()
    *_, channel, token = urlsplit(sms.adapter.envelopes[0].receipt_urls[NUMBERS[0]]).path.split("/")
    given = Callback(method="POST", url="", headers={}, query={}, body=b"delivered")
    for name, wrong in ((channel, "x" * 32), ("mail", token), (channel, "\x00"), ("", "")):
        with pytest.raises(NotFound):
            await sms.ingest.receive(name, wrong, given)
    with pytest.raises(InvalidInput):
        await sms.ingest.receive(channel, token, replace(given, body=b"lost"))
    await sms.call_back(n, "due")
    await sms.call_back(n, "delivered", address=NUMBERS[1])
    await sms.pass_time(1)
    await sms.pass_time(61)
    with pytest.raises(NotFound):
        await sms.ingest.receive(channel, token, given)
    assert statuses(await sms.now(n)) == ["accepted", "delivered"], "the token was that of the first attempt"
