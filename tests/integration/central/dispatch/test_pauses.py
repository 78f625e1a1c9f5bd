"""A provider's "too many requests": it pauses a target or the channel, and counts neither on row nor breaker."""

from datetime import timedelta

import pytest

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, Pause, fold, paused
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import Centre

MINUTE = timedelta(minutes=1)


@pytest.mark.req("CHN-02", "DEC-60")
async def test_a_pause_of_the_channel_holds_all_its_lists_and_counts_nothing(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("other")
    mailing.adapter.answer("ops", paused(Pause(MINUTE, "too many requests")))
    first = await mailing.send()
    await mailing.deliver()
    second = await mailing.send("other")
    clock.advance(2)
    await mailing.deliver()
    assert mailing.adapter.sent() == [first], "the other list waits as well"
    n, breaker = await mailing.get(first), await mailing.breaker()
    assert (n.status, n.retry_count, n.held_reason) == (Status.PENDING, 0, "too many requests")
    assert (breaker.failures, breaker.health) == (0, "healthy")
    clock.advance(60)
    await mailing.deliver()
    await mailing.deliver()
    assert {(await mailing.get(one)).status for one in (first, second)} == {Status.DELIVERED}


@pytest.mark.req("CHN-02", "DEC-60")
async def test_a_paused_target_waits_and_the_others_of_the_list_are_served(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("crew", "a", "b")

    async def limited(envelope: Envelope) -> Outcome:
        results = (Target("a", TargetStatus.DELIVERED), Target("b"))
        return fold(results, pauses=(Pause(MINUTE, "slow down", "b"),)) if "b" in envelope.targets else Delivered()

    mailing.adapter.always["crew"] = limited
    first = await mailing.send("crew")
    await mailing.deliver()
    second = await mailing.send("crew")
    clock.advance(1)
    await mailing.deliver()
    asked = [(e.notification_id, e.targets) for e in mailing.adapter.envelopes]
    assert asked == [(first, ("a", "b")), (second, ("a",))], "the second asks nothing of the paused target"
    for one in (first, second):
        n = await mailing.get(one)
        assert (n.status, n.retry_count) == (Status.PENDING, 0)
        assert [t.status for t in n.targets] == [TargetStatus.DELIVERED, TargetStatus.DUE]
    del mailing.adapter.always["crew"]
    clock.advance(61)
    await mailing.deliver()
    assert {(await mailing.get(one)).status for one in (first, second)} == {Status.DELIVERED}
    assert [e.targets for e in mailing.adapter.envelopes[2:]] == [("b",), ("b",)]


@pytest.mark.req("CHN-02")
async def test_a_pause_lasts_at_most_a_day(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.answer("ops", paused(Pause(timedelta(days=400), "for ever")))
    sent = await mailing.send()
    await mailing.deliver()
    clock.advance(24 * 3600 + 1)
    await mailing.deliver()
    assert (await mailing.get(sent)).status is Status.DELIVERED
