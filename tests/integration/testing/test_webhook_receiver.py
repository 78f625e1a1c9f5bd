"""The receiver of webhooks for tests: one server for many subscriptions, rules for each, signatures verified."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from fieldpost.core.events.signature import make_signing_secret, signed_headers
from fieldpost.core.secret import Secret
from fieldpost.testing import ManualClock, WebhookReceiver

SECRET = make_signing_secret(bytes(range(32)))
OTHER = make_signing_secret(bytes(range(32, 64)))
NOW = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    secrets = {"billing": SECRET.reveal(), "stock": OTHER.reveal()}
    async with WebhookReceiver(secrets, clock=ManualClock(NOW)) as receiver:
        yield receiver


async def post(
    receiver: WebhookReceiver, name: str, webhook_id: str = "id-1", secret: Secret = SECRET, timeout_s: float = 30
) -> bytes:
    """The first line of the answer to a signed request; empty if there is none."""
    reader, writer = await asyncio.open_connection(receiver.server.host, receiver.server.port)
    body = b'{"a": 1}'
    headers = {**signed_headers([secret], webhook_id, NOW, body), "Content-Length": str(len(body))}
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    writer.write(f"POST /{name} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + body)
    try:
        async with asyncio.timeout(timeout_s):
            return await reader.readline()
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()


async def test_a_signed_request_is_accepted_and_recorded(receiver: WebhookReceiver) -> None:
    assert (await post(receiver, "billing")).startswith(b"HTTP/1.1 200")
    [webhook] = await receiver.received(1, "billing")
    assert (webhook.name, webhook.webhook_id, webhook.status, webhook.at) == ("billing", "id-1", 200, NOW)
    assert webhook.request.body == b'{"a": 1}'
    assert await receiver.accepted(1, "billing") == ["id-1"]
    assert receiver.webhooks("stock") == []
    assert receiver.url("billing", "hook.example").startswith("http://hook.example:")


async def test_request_with_another_secret_is_rejected_by_any_rules(receiver: WebhookReceiver) -> None:
    receiver.on("billing").hang()
    assert (await post(receiver, "billing", secret=OTHER)).startswith(b"HTTP/1.1 401")
    assert (len(receiver.forged), receiver.webhooks("billing")) == (1, [])
    receiver.add("billing", OTHER.reveal())
    receiver.behave("billing")
    assert (await post(receiver, "billing", secret=OTHER)).startswith(b"HTTP/1.1 200")


async def test_an_unknown_subscription_is_not_found(receiver: WebhookReceiver) -> None:
    assert (await post(receiver, "nobody")).startswith(b"HTTP/1.1 404")


async def test_rules_apply_to_one_subscription_until_it_behaves_again(receiver: WebhookReceiver) -> None:
    receiver.on("billing").answer(503).times(1)
    receiver.on("billing").reset().times(1)
    receiver.on("billing").hang()
    answers = [await post(receiver, "billing", timeout_s=0.2) for _ in range(3)]
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 503", b"", b""]
    assert (await post(receiver, "stock", secret=OTHER)).startswith(b"HTTP/1.1 200")
    receiver.behave()
    assert (await post(receiver, "billing")).startswith(b"HTTP/1.1 200")
    assert [one.status for one in receiver.webhooks("billing")] == [503, None, None, 200]
    assert receiver.ids("billing") == ["id-1"]
    assert receiver.second_copies("billing") == [], "each earlier try failed"
    await post(receiver, "billing")
    assert receiver.second_copies("billing") == ["id-1"]


async def test_timeout_of_waiting_reports_the_number_received(receiver: WebhookReceiver) -> None:
    await post(receiver, "billing")
    with pytest.raises(TimeoutError, match="waited 0 s for 2 webhooks of billing; 1 requests received"):
        await receiver.accepted(2, "billing", timeout_s=0)
