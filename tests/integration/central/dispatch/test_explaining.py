"""Every kind of hold, brought about by dispatch, and the sentence that explains it."""

from datetime import timedelta

import pytest

from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.notifications import NotificationReader
from fieldpost.core.delivery.breaker import BreakerState, take_probe
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Evidence, Held
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter
from support.receivers import subscribe

MINUTE = timedelta(minutes=1)
URL = {"hook": "https://hook.example/"}


async def explained(centre: Centre, notification_id: str) -> str:
    detail = await NotificationReader(centre.store, centre.clock, Thresholds()).detail(notification_id)
    return detail.why


async def the_one(centre: Centre) -> str:
    [[notification_id]] = await centre.rows("select notification_id from notifications")
    return str(notification_id)


@pytest.mark.req("DEC-10", "DEC-45", "DEC-80")
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (HoldKind.RATE_LIMIT, "Its delivery path accepts no more calls for now."),
        (HoldKind.OUR_SIDE, "Central cannot make the call at present."),
    ],
)
async def test_timed_hold_is_explained_with_cause_end_and_next_step(
    centre: Centre, clock: ManualClock, kind: HoldKind, cause: str
) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    adapter.answer("hook", Held("the reason", kind=kind, evidence=Evidence.NONE, wait=2 * MINUTE))
    await subscribe(centre, URL)
    sent = await the_one(centre)
    await centre.deliver()
    n = await centre.get(sent)
    assert (n.status, n.retry_count, n.due_at) == (Status.PENDING, 0, clock.now() + 2 * MINUTE)
    until = (clock.now() + 2 * MINUTE).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert await explained(centre, sent) == f"{cause} It is held until {until} without using an attempt: the reason."

    clock.advance(120)
    ended = f"{cause} It is held until the next sweep without using an attempt: the reason."
    assert await explained(centre, sent) == ended, "its time has come, and no node has looked yet"
    await centre.deliver()
    assert (await explained(centre, sent)).startswith("It was delivered at ")


@pytest.mark.req("DEC-10", "DEC-22")
async def test_a_hold_by_a_breaker_is_explained_in_each_state_of_the_breaker(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.always["ops"] = Held("connection refused", phase="connect")
    sent = await mailing.send()
    held = "It is held by the breaker of channel:mail: connection refused. Waiting uses up no attempts."

    def at(seconds: float) -> str:
        return (clock.now() + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S UTC")

    async with (dispatcher := mailing.dispatcher(breaker_failures_max=2)).running():
        await mailing.deliver(dispatcher)
        assert await explained(mailing, sent) == f"{held} Next attempt at {at(10)}.", "one failure: a short hold"
        clock.advance(10)
        await mailing.deliver(dispatcher)
        assert (await mailing.breaker()).state is BreakerState.OPEN
        assert f"at {at(60)}" in await explained(mailing, sent), "open: the next probe"
        clock.advance(60)
        assert "is due now" in await explained(mailing, sent)
        probed = await mailing.store.write(
            breakers.change, "channel:mail", lambda b: take_probe(b, "node-2", clock.now(), 90)
        )
        assert probed is not None
        assert "Node node-2 is probing the channel now" in await explained(mailing, sent)
        await mailing.execute("update breakers set state = 'closed', failures = 0, probe_owner = null")
        assert "The breaker is closed again" in await explained(mailing, sent)
