"""Whose retry policy counts: the list's own, else its channel's, else the fixed one of the channel's settings."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.delivery.retry import Exponential, Fixed, Schedule, parse
from fieldpost.core.lists import Channel
from fieldpost.core.notification import Status
from support.centre import Centre

BUSY = TransientFailure("451 busy")


async def delay_after_failure(centre: Centre, list_name: str) -> timedelta:
    """How long after its first failure a notification to the list is due again."""
    centre.adapter.answer(list_name, BUSY)
    sent = await centre.send(list_name)
    await centre.deliver()
    found = await centre.get(sent)
    assert found.status is Status.RETRYING
    assert found.next_attempt_at is not None
    assert found.last_attempt_at is not None
    return found.next_attempt_at - found.last_attempt_at


@pytest.mark.req("DEC-19", "RTY-01", "RTY-02")
async def test_a_list_without_a_policy_has_the_fixed_one_of_its_channel(centre: Centre) -> None:
    await centre.add_channel(retry_delay_s=45.0)
    await centre.add_list("ops")
    assert await delay_after_failure(centre, "ops") == timedelta(seconds=45)


@pytest.mark.req("DEC-19")
async def test_a_lists_policy_overrides_its_channels_and_that_the_fixed_one(centre: Centre) -> None:
    hourly = Schedule((timedelta(hours=1),))
    channel = Channel("mail", "email", {}, is_default=True, retry=hourly, retry_delay_s=45.0)
    await centre.store.write(lists.add_channel, channel, centre.clock.now())
    await centre.add_list("patient")
    await centre.add_list("hasty", retry=Exponential(timedelta(seconds=2), 5))

    assert await delay_after_failure(centre, "patient") == timedelta(hours=1)
    assert await delay_after_failure(centre, "hasty") == timedelta(seconds=2)


@pytest.mark.req("DEC-19")
async def test_a_schedule_parks_after_its_last_wait(centre: Centre) -> None:
    await centre.add_channel()
    await centre.add_list("ops", retry=parse("schedule:10s,20s"))
    centre.adapter.always["ops"] = BUSY
    sent = await centre.send("ops")
    statuses = []
    for _ in range(3):
        await centre.deliver()
        statuses.append((await centre.get(sent)).status)
        centre.clock.advance(30)  # type: ignore[attr-defined]
    assert statuses == [Status.RETRYING, Status.RETRYING, Status.PARKED]


async def test_a_policy_is_stored_and_read_back(centre: Centre) -> None:
    await centre.add_channel()
    await centre.add_list("ops", retry=Fixed(timedelta(seconds=7), 4, 0.5))
    found = await centre.store.read(lists.get_list, "ops")
    assert found is not None
    assert found.retry == Fixed(timedelta(seconds=7), 4, 0.5)
    channel = await centre.store.read(lists.get_channel, "mail")
    assert channel is not None
    assert await centre.store.write(
        lists.change_channel, replace(channel, retry=parse("fixed:9s:3")), centre.clock.now()
    )
    changed = await centre.store.read(lists.get_channel, "mail")
    assert changed is not None
    assert changed.retry == Fixed(timedelta(seconds=9), 3)


async def test_invalid_policy_written_by_hand_counts_as_missing(centre: Centre) -> None:
    await centre.add_channel(retry_delay_s=45.0)
    await centre.add_list("ops")
    await centre.execute("update lists set retry = 'now and then'")
    assert await delay_after_failure(centre, "ops") == timedelta(seconds=45)
