"""Lists, their targets and channels."""

import pytest
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store import lists
from fieldpost.core.lists import Channel, Directory, NotificationList
from fieldpost.testing import ManualClock
from support.centre import Centre


@pytest.mark.req("TOP-05")
async def test_a_list_comes_back_with_its_targets_in_order(centre: Centre, clock: ManualClock) -> None:
    made = NotificationList("ops", "email", "mail", ("b@example.org", "a@example.org"), park_uncertain=True)
    await centre.store.write(lists.add_list, made, clock.now())
    await centre.store.write(lists.add_list, NotificationList("empty", "teams"), clock.now())
    ops = NotificationList("ops", "email", "mail", ("a@example.org", "b@example.org"), True, 1)
    empty = NotificationList("empty", "teams", None, (), False, 1)
    assert await centre.store.read(lists.get_list, "ops") == ops
    assert await centre.store.read(lists.all_lists) == [empty, ops]
    assert await centre.store.read(lists.get_list, "nobody") is None


async def test_a_name_is_taken_once(centre: Centre, clock: ManualClock) -> None:
    await centre.add_list("ops")
    await centre.add_channel("mail")
    with pytest.raises(IntegrityError):
        await centre.add_list("ops")
    with pytest.raises(IntegrityError):
        await centre.add_channel("mail")
    assert len(await centre.store.read(lists.all_lists)) == len(await centre.store.read(lists.all_channels)) == 1


async def test_a_removed_list_is_gone_with_its_targets(centre: Centre) -> None:
    await centre.add_list("ops", "a@example.org")
    assert await centre.store.write(lists.remove_list, "ops")
    assert not await centre.store.write(lists.remove_list, "ops")
    await centre.add_list("ops", "b@example.org")
    found = await centre.store.read(lists.get_list, "ops")
    assert found is not None
    assert found.targets == ("b@example.org",)


async def test_types_are_told_of_those_that_exist(centre: Centre) -> None:
    await centre.add_list("ops")
    await centre.add_list("chat", type="teams")
    assert await centre.store.read(lists.types_of, ["ops", "chat", "nobody"]) == {"ops": "email", "chat": "teams"}


async def test_of_a_type_the_newest_default_channel_is_the_default(centre: Centre, clock: ManualClock) -> None:
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


async def test_a_channel_is_changed_only_as_it_was_seen(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel("mail", host="mail.example.org")
    seen = await centre.store.read(lists.get_channel, "mail")
    assert seen is not None
    assert seen == Channel(
        "mail", "email", {"max_retries": 3, "retry_delay_s": 60.0, "host": "mail.example.org"}, True, 1
    )
    changed = Channel("mail", "email", {"host": "other.example.org", "port": 25}, True, seen.version)
    assert await centre.store.write(lists.change_channel, changed, clock.now())
    assert not await centre.store.write(lists.change_channel, changed, clock.now()), "it is no longer as seen"
    found = await centre.store.read(lists.get_channel, "mail")
    assert found == Channel("mail", "email", {"host": "other.example.org", "port": 25}, True, 2)
    assert await centre.store.write(lists.remove_channel, "mail")
    assert not await centre.store.write(lists.remove_channel, "mail")
    assert await centre.store.read(lists.get_channel, "mail") is None


async def test_the_directory_holds_lists_without_targets_and_channels(mailing: Centre) -> None:
    found = await mailing.store.read(lists.directory)
    assert found == Directory(
        {"ops": NotificationList("ops", "email")},
        {"mail": Channel("mail", "email", {"max_retries": 3, "retry_delay_s": 60.0}, True)},
    )
