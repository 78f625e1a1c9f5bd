"""Resolving a list to its way out."""

import pytest

from fieldpost.core.lists import Channel, DeliveryPath, Directory, NotificationList, resolve
from fieldpost.core.outcome import PermanentFailure

OPS = NotificationList("ops", "email")
MAIL = Channel("mail", "email", {})
RELAY = Channel("relay", "email", {})
DEFAULT = Channel("main", "email", {}, is_default=True)
CHAT = Channel("chat", "teams", {}, is_default=True)


def route(notification_list: NotificationList, *channels: Channel) -> DeliveryPath | PermanentFailure:
    directory = Directory({notification_list.name: notification_list}, {c.name: c for c in channels})
    return resolve(directory, notification_list.name)


def with_channel(name: str) -> NotificationList:
    return NotificationList("ops", "email", channel_name=name)


@pytest.mark.parametrize(
    ("notification_list", "channels", "chosen"),
    [
        (with_channel("relay"), (MAIL, RELAY, DEFAULT), RELAY),
        (OPS, (MAIL, DEFAULT, RELAY), DEFAULT),
        (OPS, (MAIL,), MAIL),
        (OPS, (CHAT, MAIL), MAIL),
        (NotificationList("ops", "teams"), (CHAT, DEFAULT), CHAT),
    ],
    ids=["its own", "the default", "the only one", "the only one of its type", "the default of its type"],
)
def test_a_list_goes_by_its_own_channel_else_the_default_else_the_only_one_of_its_type(
    notification_list: NotificationList, channels: tuple[Channel, ...], chosen: Channel
) -> None:
    assert route(notification_list, *channels) == DeliveryPath(notification_list, chosen)


@pytest.mark.req("ADP-11")
@pytest.mark.parametrize(
    ("notification_list", "channels", "reason"),
    [
        (OPS, (), "list 'ops' is of type 'email', but no default channel of its type is configured"),
        (OPS, (CHAT,), "list 'ops' is of type 'email', but no default channel of its type is configured"),
        (OPS, (MAIL, RELAY), "list 'ops' is of type 'email', but no default channel of its type is configured"),
        (with_channel("gone"), (MAIL, DEFAULT), "list 'ops' is of type 'email', but its channel 'gone' does not exist"),
        (
            with_channel("chat"),
            (CHAT, MAIL),
            "list 'ops' is of type 'email', but its channel 'chat' is of type 'teams'",
        ),
    ],
    ids=["no channel", "none of its type", "two and no default", "its own is gone", "its own is of another type"],
)
def test_a_list_without_a_way_out_fails_for_good_and_says_why(
    notification_list: NotificationList, channels: tuple[Channel, ...], reason: str
) -> None:
    assert route(notification_list, *channels) == PermanentFailure(reason, phase="resolve")


@pytest.mark.req("ADP-11")
def test_a_list_that_is_not_there_fails_for_good_and_is_named() -> None:
    assert resolve(Directory(), "ghosts") == PermanentFailure("there is no list named 'ghosts'", phase="resolve")
