"""`/receipts/v1/{channel}/{token}`: open without a login, bounded, rate-limited, one answer for all wrong tokens."""

import pytest

from fieldpost.central.ingest.receipts import ReceiptIngest
from fieldpost.central.store.notifications import receipts
from fieldpost.core.delivery.receipt import Callback, Receipt, ReceiptStatus
from support.centre import ScriptedAdapter
from support.front import Front

TOKEN = "t" * 32
PATH = f"/receipts/v1/sms/{TOKEN}"


class Reporting(ScriptedAdapter):
    """Notes callbacks and reports a delivery."""

    can_ask = False

    def __init__(self) -> None:
        super().__init__("sms")
        self.callbacks: list[Callback] = []

    async def ask(self, settings: object, provider_ids: object) -> tuple[()]:
        return ()

    def read_callback(self, settings: object, callback: Callback) -> Receipt:
        self.callbacks.append(callback)
        return Receipt(provider_id="", status=ReceiptStatus.DELIVERED)


@pytest.mark.req("CHN-08", "DEC-63")
async def test_a_provider_reports_by_its_token_alone_within_limits(front: Front) -> None:
    centre, adapter = front.centre, Reporting()
    centre.ingest.receipts = ReceiptIngest(centre.store, {"sms": adapter}, centre.keyring)
    await centre.add_channel("sms", type="sms")
    await centre.add_list("duty", "+31600000001", type="sms")
    sent = await centre.send("duty")
    await centre.store.write(receipts.expect, [(sent, "+31600000001", TOKEN, "sms")])
    async with front.client(None) as provider:
        for answer in (await provider.post(f"{PATH}?status=1", content=b"x"), await provider.get(PATH)):
            assert (answer.status_code, answer.content) == (204, b"")
        assert [(one.method, one.body, dict(one.query)) for one in adapter.callbacks] == [
            ("POST", b"x", {"status": "1"}),
            ("GET", b"", {}),
        ]
        assert adapter.callbacks[0].url.endswith(f"{PATH}?status=1")
        wrong = [await provider.post(f"/receipts/v1/{one}") for one in (f"sms/{'u' * 32}", f"mail/{TOKEN}", "sms/%00")]
        assert {(one.status_code, one.json()["code"]) for one in wrong} == {(404, "receipt.unknown")}
        assert (await provider.post(PATH, content=b"x" * 1_000_000)).status_code == 413
        front.app.state.backend.receipt_allowances._buckets["127.0.0.1"].charge(10_000)
        refused = await provider.get(PATH)
        assert (refused.status_code, refused.json()["code"]) == (429, "receipt.too_many")
        assert "retry-after" in refused.headers
    assert await centre.rows("select status from receipts") == [("delivered",)]
