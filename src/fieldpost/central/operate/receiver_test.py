"""Signed tests of a receiver: one request outside the queue, without quick tries.

A subscriber types the URL of the receiver, so tests must not be usable to flood another server: tests of one owner
have a rate over all nodes.
"""

import json
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.operate.subscription_settings import new_signing_secret
from fieldpost.central.operate.trial import Trial, deliver_test
from fieldpost.central.secrets.keyring import Opened
from fieldpost.central.store.notifications import rates
from fieldpost.core.delivery.adapter import Adapter, Envelope
from fieldpost.core.delivery.outcome import PermanentFailure, scrubbed
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.errors import Conflict
from fieldpost.core.events.event import Event, RecordedEvent
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.ids import NotificationId

TEST_TOPIC = "fieldpost.test"
RATE = Rate(100, timedelta(hours=1))
"""How many tests the subscribers of one owner may send."""
REJECTIONS = (400, 401, 403)
"""The answers with which a receiver rejects a request that is not authentic."""
_AUTH = ("auth", "auth_header", "username", "auth_secret", "token_url", "client_id", "scope", "former_secret")


def take_test(conn: Connection, owner: str, *, now: datetime | None) -> None:
    """Take one test from the owner's rate; Conflict if none is left."""
    key = f"test:{owner}"
    grant = rates.take_many(conn, {key: (RATE, 1)}, now=now)[key]
    if not grant.count:
        raise Conflict(
            "subscription.tests",
            f"{owner!r} has sent too many tests; the maximum is {RATE.count} per hour",
            hint="wait a minute and try again",
        )


async def send_test(
    adapter: Adapter, subscription: Subscription, opened: Opened, id_: str, by: str, now: datetime
) -> Trial:
    """Send a signed test event to the receiver, and return the conversation without secrets."""
    return await _send(adapter, subscription, opened, {**opened.settings}, id_, by, now)


async def check_rejection(
    adapter: Adapter, subscription: Subscription, opened: Opened, id_: str, by: str, tested: Trial, now: datetime
) -> Trial:
    """Send the test again without credentials and with a wrong signature. A receiver that does not reject it accepts
    forged events; then the outcome is a failure."""
    forged = {name: value for name, value in opened.settings.items() if name not in _AUTH}
    answer = await _send(adapter, subscription, opened, forged | {"secret": new_signing_secret()}, id_, by, now)
    transcript = (*tested.transcript, "-- the same without credentials and with a wrong signature", *answer.transcript)
    status = answer.outcome.exchanges[-1].status if answer.outcome.exchanges else None
    if status in REJECTIONS:
        return Trial(tested.outcome, transcript)
    found = f"answered it with {status}" if status is not None else "did not answer it"
    error = (
        "the receiver must reject a request without credentials and with a wrong signature, by 400, 401 or 403; it"
        f" {found}"
    )
    return Trial(PermanentFailure(error, phase="answer", exchanges=answer.outcome.exchanges), transcript)


async def _send(
    adapter: Adapter,
    subscription: Subscription,
    opened: Opened,
    settings: dict[str, object],
    id_: str,
    by: str,
    now: datetime,
) -> Trial:
    lines: list[str] = []
    envelope = Envelope(
        notification_id=NotificationId(id_),
        list_name=subscription.name,
        subject="",
        body="",
        targets=(subscription_key(subscription.subscription_id),),
        settings=settings | {"quick_tries": 0},
        dated=now,
        gate=lambda: None,  # a test has no claim to lose
        event=RecordedEvent(_test_event(id_, subscription, by), now, 1),
        transcript=lines.append,
    )
    outcome = scrubbed(await deliver_test(adapter, envelope), opened.scrub)
    return Trial(outcome, tuple(map(opened.scrub, lines)))


def _test_event(id_: str, subscription: Subscription, by: str) -> Event:
    text = f"{by} tested the subscription {subscription.name} of Fieldpost. No action is needed."
    payload = json.dumps({"message": text}, ensure_ascii=False)
    return Event(event_id=id_, topic=TEST_TOPIC, source="fieldpost", payload=payload)
