"""Rate, pause and queue of a channel: the same on its pages and in the API."""

from datetime import timedelta

import pytest

from fieldpost.core.delivery.outcome import Held, Pause, paused
from fieldpost.core.delivery.rate import parse_rate
from fieldpost.core.notification import list_key
from support.front import Front
from support.visitor import visiting

MINUTE = timedelta(minutes=1)


@pytest.mark.req("CHN-03")
async def test_a_queue_behind_a_rate_is_shown_with_the_time_when_it_is_empty(front: Front) -> None:
    await front.centre.add_channel("chat", default=True, rate="60/10m")
    await front.centre.add_list("ops")
    await front.centre.add_list("slow", rate=parse_rate("1/1m"))
    for name in ("ops", "slow"):
        await front.centre.send_many(12, name)
    for _ in range(2):
        await front.centre.deliver()
        front.clock.advance(1)
    state, at = await front.watch.channels.one("chat")
    backlog = state.backlog
    assert backlog.empty_at is not None
    counts = await front.centre.rows("select held_by, count(*) from notifications where due_at is not null group by 1")
    assert {f"rate:{list_key(one.list_name)}": one.waiting for one in backlog.lists} == dict(counts)
    assert 600 < (backlog.empty_at - at).total_seconds() < 720, "the slow list: one a minute"
    async with visiting(front, "viewer") as visitor:
        for path in ("/channels", "/channels/chat"):
            text = await visitor.look(path)
            assert f"{backlog.waiting} empty at" in text, path
            assert "60/10m" in text, path
    async with front.client("viewer") as client:
        shown = (await client.get("/api/v1/channels/chat")).json()
        assert shown["backlog"]["waiting"] == backlog.waiting
        assert [(one["list_name"], one["rate"]) for one in shown["backlog"]["lists"]] == [
            ("slow", "1/1m"),
            ("ops", None),
        ]
        assert (await client.get("/api/v1/channels")).json()["channels"] == [shown]


@pytest.mark.req("CHN-02")
async def test_a_pause_is_shown_with_its_end_its_reason_and_the_notifications_behind_it(front: Front) -> None:
    await front.centre.add_channel("chat", default=True)
    await front.centre.add_list("ops")
    await front.centre.add_list("crew")
    front.centre.adapter.answer("ops", paused(Pause(5 * MINUTE, "the provider asked to wait")))
    await front.centre.send("ops")
    await front.centre.deliver()
    await front.centre.send_many(3, "crew")
    front.clock.advance(2)
    await front.centre.deliver()
    state, at = await front.watch.channels.one("chat")
    assert state.backlog.pause is not None
    assert (state.backlog.waiting, state.backlog.empty_at) == (4, state.backlog.pause.until)
    assert 290 < (state.backlog.pause.until - at).total_seconds() <= 300
    async with visiting(front, "viewer") as visitor:
        assert "paused" in await visitor.look("/channels")
        text = await visitor.look("/channels/chat")
        assert "Paused until" in text
        assert "the provider asked to wait" in text
    front.clock.advance(300)
    for _ in range(3):
        await front.centre.deliver()
        front.clock.advance(1)
    state, _ = await front.watch.channels.one("chat")
    assert (state.backlog.pauses, state.backlog.waiting, state.backlog.empty_at) == ([], 0, None)


async def test_a_blocked_list_with_its_own_breaker_is_shown_on_its_channel(front: Front) -> None:
    await front.centre.add_channel("hooks", type="webhook", default=True)
    await front.centre.add_list("ops", type="webhook")
    front.centre.adapters["webhook"] = front.centre.adapter
    front.centre.adapter.always["ops"] = Held("connecting was refused", phase="connect")
    await front.centre.send_many(3)
    for _ in range(12):
        await front.centre.deliver()
        front.clock.advance(11)
    state, _ = await front.watch.channels.one("hooks")
    assert (state.blocked_lists, state.held) == (["ops"], 3)
    async with visiting(front, "viewer") as visitor:
        assert "1 list blocked" in await visitor.look("/channels")
        assert "is blocked; the first failure was at" in await visitor.look("/channels/hooks")
        assert "Channel hooks: list ops is blocked: connecting was refused. 3 notifications are held." in (
            await visitor.look("/")
        )
