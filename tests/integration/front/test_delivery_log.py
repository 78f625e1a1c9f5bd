"""The delivery log: tries, requests and responses of a subscription's notifications, and who may read what."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fieldpost.central.watch.events.deliveries import ATTEMPTS_MAX
from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.outcome import Delivered, Evidence, TransientFailure
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.hooks import Hooks
from support.visitor import visiting

URL = "https://billing.example/in"
SECRET_ANSWER = "<b>stack trace</b> of billing"
FAILED = Exchange(
    url=URL,
    tries=(
        HttpTry(offset_ms=0, duration_ms=31, error="connection refused", phase="connect"),
        HttpTry(offset_ms=540, duration_ms=120, status=500),
    ),
    request_headers={"webhook-id": "x", "webhook-signature": "***"},
    status=500,
    response_headers={"Server": "nginx/internal-7"},
    response_body=SECRET_ANSWER,
)
ACCEPTED = replace(FAILED, tries=(HttpTry(offset_ms=0, duration_ms=9, status=204),), status=204, response_body="")
FAILS = TransientFailure("the receiver answered 500", evidence=Evidence.FAILS, exchanges=(FAILED,))


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


@pytest.fixture
def hooks(quick: Front) -> Hooks:
    return Hooks(quick.centre, quick.clock)


async def deliver(hooks: Hooks) -> tuple[Subscription, str]:
    """One notification that failed once and was then delivered."""
    subscription = await hooks.subscribe()
    sent = await hooks.one(subscription)
    hooks.adapter.answer("billing", FAILS, Delivered(reply="204", exchanges=(ACCEPTED,)))
    await hooks.centre.deliver()
    hooks.clock.advance(15 * 60)
    await hooks.centre.deliver()
    assert (await hooks.get(sent)).status is Status.DELIVERED
    return subscription, sent


async def read(front: Front, path: str, caller: str = "admin", **query: str) -> Any:
    async with front.client(caller) as client:
        answer = await client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_log_has_every_attempt_with_tries_request_response_and_reason(quick: Front, hooks: Hooks) -> None:
    subscription, sent = await deliver(hooks)
    (one,) = (await read(quick, f"subscriptions/{subscription.subscription_id}/deliveries"))["deliveries"]
    assert (one["notification_id"], one["status"], one["attempt_count"]) == (sent, "delivered", 2)
    failed, accepted = one["attempts"]
    assert failed["why"].startswith("The receiver answered 500 (2 tries, ")
    assert accepted["why"].startswith("The receiver answered 204")
    (exchange,) = failed["exchanges"]
    assert exchange["url"] == URL
    assert [(made["status"], made["error"], made["offset_ms"]) for made in exchange["tries"]] == [
        (None, "connection refused", 0),
        (500, None, 540),
    ]
    assert exchange["request_headers"]["webhook-signature"] == "***"
    assert (exchange["status"], exchange["response_body"]) == (500, SECRET_ANSWER)
    detail = await read(quick, f"notifications/{sent}")
    assert [attempt["exchanges"] for attempt in detail["attempts"]] == [failed["exchanges"], accepted["exchanges"]]
    assert detail["request_body"].startswith('{"type":"orders.created","timestamp":"')


@pytest.mark.dec("DEC-67")
@pytest.mark.threat(16)
@pytest.mark.parametrize("caller", ["viewer", "operator", "admin"])
async def test_responses_are_visible_to_administrators_only(quick: Front, hooks: Hooks, caller: str) -> None:
    subscription, sent = await deliver(hooks)
    texts, pages = [], []
    async with quick.client(caller) as client:
        for path in (f"subscriptions/{subscription.subscription_id}/deliveries", f"notifications/{sent}"):
            answer = await client.get(f"/api/v1/{path}")
            assert answer.json()["as_of"]
            texts.append(answer.text)
    async with visiting(quick, caller) as visitor:
        for path in (f"subscriptions/{subscription.subscription_id}", f"notifications/{sent}"):
            pages.append(await visitor.look(f"/{path}"))
        pages.append(await visitor.look(f"/subscriptions/{subscription.subscription_id}/log"))
    for text in texts + pages:
        assert "connection refused" in text, "tries and reasons are for everybody"
        for hidden in ("stack trace", "nginx/internal-7"):
            assert (hidden in text) == (caller == "admin")
    assert all(("Only administrators and the owner" in page) == (caller != "admin") for page in pages)


@pytest.mark.threat(16)
async def test_a_viewer_reads_no_payload_in_the_log(quick: Front, hooks: Hooks) -> None:
    subscription, sent = await deliver(hooks)
    assert (await read(quick, f"notifications/{sent}", "viewer"))["request_body"] is None
    assert '{"n": 0}' in (await read(quick, f"notifications/{sent}", "operator"))["request_body"]
    async with visiting(quick, "viewer") as visitor:
        for path in (f"/notifications/{sent}", f"/subscriptions/{subscription.subscription_id}/log"):
            assert '{"n": 0}' not in await visitor.look(path)


async def test_the_log_is_paged_filtered_and_bounded(quick: Front, hooks: Hooks) -> None:
    subscription = await hooks.subscribe()
    other = await hooks.subscribe("stock")
    await hooks.publish(7)
    hooks.adapter.always["billing"] = FAILS
    path = f"subscriptions/{subscription.subscription_id}/deliveries"
    await hooks.centre.deliver()
    seen, cursor = [], None
    while True:
        page = await read(quick, path, limit="3", **({"cursor": cursor} if cursor else {}))
        seen += [one["notification_id"] for one in page["deliveries"]]
        if (cursor := page["next_cursor"]) is None:
            break
    listed = await read(quick, "notifications", subscription=subscription.subscription_id)
    assert seen == [line["notification_id"] for line in listed["notifications"]]
    assert len(seen) == 7
    tried = await read(quick, path, status="retrying")
    assert len(tried["deliveries"]) == 7
    assert (await read(quick, path, status="parked"))["deliveries"] == []
    sent = tried["deliveries"][0]["notification_id"]
    for number in range(ATTEMPTS_MAX):
        await quick.centre.execute(
            "insert into attempts (notification_id, claim_token, cycle, node_id, started_at, finished_at, outcome)"
            f" select notification_id, claim_token + {100 + number}, cycle, node_id, started_at, finished_at, outcome"
            " from attempts where claim_token < 100"
        )
    (one,) = [one for one in (await read(quick, path))["deliveries"] if one["notification_id"] == sent]
    assert (one["attempt_count"], len(one["attempts"])) == (ATTEMPTS_MAX + 1, ATTEMPTS_MAX), "the newest ones"
    assert [bool(attempt["exchanges"]) for attempt in one["attempts"]] == [False] * ATTEMPTS_MAX
    async with quick.client("viewer") as client:
        for wrong, field in (("status=lost", "status"), ("limit=0", "limit"), ("cursor=x", "cursor")):
            answer = await client.get(f"/api/v1/{path}?{wrong}")
            assert answer.status_code in (400, 422)
            assert answer.json()["field"] == field
        for unknown in (sent, "billing"):
            assert (await client.get(f"/api/v1/subscriptions/{unknown}/deliveries")).status_code == 404
    assert (
        len((await read(quick, path.replace(subscription.subscription_id, other.subscription_id)))["deliveries"]) == 7
    )


async def test_pages_of_an_empty_log_explain_themselves(quick: Front, hooks: Hooks) -> None:
    subscription = await hooks.subscribe()
    path = f"/subscriptions/{subscription.subscription_id}"
    async with visiting(quick, "viewer") as visitor:
        assert "No deliveries yet" in await visitor.look(path)
        assert "No deliveries yet" in await visitor.look(f"{path}/log")
        assert "No matching deliveries" in await visitor.look(f"{path}/log?status=parked")
        await hooks.publish()
        assert "Not attempted yet" in await visitor.look(f"{path}/log")
        await visitor.look(f"{path}/log?status=lost")
        assert (visitor.page.status_code, "Invalid filter" in visitor.text) == (422, True)
