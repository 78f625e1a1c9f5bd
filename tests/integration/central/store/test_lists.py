"""Lists, their targets and channels."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.retry import Exponential, Fixed, RetryPolicy, Schedule
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.testing import ManualClock
from support.centre import Centre


@pytest.mark.req("TOP-05")
async def test_list_is_read_with_its_targets_in_order(centre: Centre, clock: ManualClock) -> None:
    made = NotificationList("ops", "email", "mail", ("b@example.org", "a@example.org"), park_uncertain=True)
    await centre.store.write(lists.add_list, made, clock.now())
    await centre.store.write(lists.add_list, NotificationList("empty", "teams"), clock.now())
    ops = NotificationList("ops", "email", "mail", ("a@example.org", "b@example.org"), True, 1)
    empty = NotificationList("empty", "teams", None, (), False, 1)
    assert await centre.store.read(lists.get_list, "ops") == ops
    assert await centre.store.read(lists.all_lists) == [empty, ops]
    assert await centre.store.read(lists.get_list, "nobody") is None


async def test_name_is_unique(centre: Centre, clock: ManualClock) -> None:
    await centre.add_list("ops")
    await centre.add_channel("mail")
    with pytest.raises(IntegrityError):
        await centre.add_list("ops")
    with pytest.raises(IntegrityError):
        await centre.add_channel("mail")
    assert len(await centre.store.read(lists.all_lists)) == len(await centre.store.read(lists.all_channels)) == 1


async def test_removed_list_is_deleted_with_its_targets(centre: Centre) -> None:
    await centre.add_list("ops", "a@example.org")
    assert await centre.store.write(lists.remove_list, "ops")
    assert not await centre.store.write(lists.remove_list, "ops")
    await centre.add_list("ops", "b@example.org")
    found = await centre.store.read(lists.get_list, "ops")
    assert found is not None
    assert found.targets == ("b@example.org",)


async def test_newest_default_channel_of_a_type_is_the_default(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel("old")
    await centre.add_channel("teams", type="teams")
    await centre.add_channel("new")
    assert [(c.name, c.is_default) for c in await centre.store.read(lists.all_channels)] == [
        ("new", True),
        ("old", False),
        ("teams", True),
    ]
    with pytest.raises(IntegrityError):
        await centre.execute("update channels set is_default = true where channel_name = 'old'")


async def test_channel_is_changed_only_at_the_version_seen(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel("mail", host="mail.example.org")
    seen = await centre.store.read(lists.get_channel, "mail")
    assert seen is not None
    assert seen == Channel("mail", "email", {"host": "mail.example.org"}, True, 1, max_retries=3)
    other = {"host": "other.example.org", "port": 25}
    changed = Channel("mail", "email", other, True, seen.version, max_retries=4, retry_delay_s=2.5)
    assert await centre.store.write(lists.change_channel, changed, clock.now())
    assert not await centre.store.write(lists.change_channel, changed, clock.now()), "it is no longer as seen"
    found = await centre.store.read(lists.get_channel, "mail")
    assert found == replace(changed, version=2)
    assert await centre.store.write(lists.remove_channel, "mail")
    assert not await centre.store.write(lists.remove_channel, "mail")
    assert await centre.store.read(lists.get_channel, "mail") is None


async def test_directory_contains_lists_without_targets_and_channels(mailing: Centre) -> None:
    found = await mailing.store.read(lists.directory)
    assert found == Directory(
        {"ops": NotificationList("ops", "email")},
        {"mail": Channel("mail", "email", {}, True, max_retries=3)},
    )


async def test_list_is_changed_only_at_the_version_seen_and_keeps_remaining_targets(
    centre: Centre, clock: ManualClock
) -> None:
    await centre.add_list("ops", "a@example.org", "b@example.org")
    await centre.add_list("other", "a@example.org")
    wanted = NotificationList(
        "ops",
        "email",
        "mail",
        ("b@example.org", "c@example.org"),
        park_uncertain=True,
        version=1,
        retry=Schedule((timedelta(minutes=1), timedelta(hours=1))),
        allowed_sites=("plant-7",),
    )
    assert await centre.store.write(lists.change_list, wanted, clock.now())
    assert not await centre.store.write(lists.change_list, wanted, clock.now()), "it is no longer as seen"
    assert await centre.store.read(lists.get_list, "ops") == replace(wanted, version=2)
    other = await centre.store.read(lists.get_list, "other")
    assert other is not None
    assert other.targets == ("a@example.org",)


@pytest.mark.req("DEC-19")
@pytest.mark.parametrize(
    "policy",
    [
        Fixed(timedelta(seconds=30), 4, jitter=0.5),
        Schedule((timedelta(minutes=15), timedelta(days=1))),
        Exponential(timedelta(seconds=1), 7, factor=3.0, wait_max=timedelta(minutes=5)),
    ],
    ids=lambda policy: type(policy).__name__.lower(),
)
async def test_retry_policy_of_every_kind_round_trips(centre: Centre, clock: ManualClock, policy: RetryPolicy) -> None:
    await centre.store.write(lists.add_list, NotificationList("ops", "email", retry=policy), clock.now())
    await centre.store.write(lists.add_channel, Channel("mail", "email", {}, retry=policy), clock.now())
    directory = await centre.store.read(lists.directory)
    assert directory.lists["ops"].retry == directory.channels["mail"].retry == policy


async def test_channels_are_resealed_in_batches_only_at_the_version_seen(centre: Centre, clock: ManualClock) -> None:
    for name in ("a", "b", "c"):
        made = Channel(name, "email", {}, secrets={"password": f"sealed {name}"})
        await centre.store.write(lists.add_channel, made, clock.now())
    first = await centre.store.read(lists.channels_after, "", 2)
    rest = await centre.store.read(lists.channels_after, first[-1].name, 2)
    assert [channel.name for channel in [*first, *rest]] == ["a", "b", "c"]
    resealed = replace(first[0], secrets={"password": "sealed otherwise"})
    assert await centre.store.write(lists.reseal_channel, resealed)
    assert await centre.store.read(lists.get_channel, "a") == resealed, "its version stays as it is"
    assert not await centre.store.write(lists.reseal_channel, replace(resealed, version=7))
