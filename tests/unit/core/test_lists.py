"""Resolving a delivery key to its path."""

import pytest

from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.core.delivery.routing import DeliveryPath, Directory, PathDefaults, SlotPool, resolve
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.notification import list_key

OPS = NotificationList("ops", "email")
MAIL = Channel("mail", "email", {})
RELAY = Channel("relay", "email", {})
DEFAULT = Channel("main", "email", {}, is_default=True)
CHAT = Channel("chat", "teams", {}, is_default=True)


def route(notification_list: NotificationList, *channels: Channel) -> DeliveryPath | PermanentFailure:
    directory = Directory({notification_list.name: notification_list}, {c.name: c for c in channels})
    return resolve(directory, list_key(notification_list.name), PathDefaults())


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
def test_list_uses_its_channel_else_the_default_else_the_only_one_of_its_type(
    notification_list: NotificationList, channels: tuple[Channel, ...], chosen: Channel
) -> None:
    path = route(notification_list, *channels)
    assert isinstance(path, DeliveryPath)
    assert (path.via, path.breaker_key, path.type) == (chosen, f"channel:{chosen.name}", chosen.type)
    assert (path.delivery_key, path.limits.pool) == ("list:ops", SlotPool.LISTS)


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
def test_list_without_a_channel_fails_permanently_with_the_reason(
    notification_list: NotificationList, channels: tuple[Channel, ...], reason: str
) -> None:
    assert route(notification_list, *channels) == PermanentFailure(reason, phase="resolve", evidence=Evidence.NONE)


@pytest.mark.req("ADP-11")
def test_missing_list_fails_permanently_and_is_named() -> None:
    assert resolve(Directory(), list_key("ghosts"), PathDefaults()) == PermanentFailure(
        "there is no list named 'ghosts'", phase="resolve", evidence=Evidence.NONE
    )


@pytest.mark.req("DEC-44")
def test_subscription_has_its_own_path_even_if_a_list_has_its_name() -> None:
    subscription = Subscription(
        subscription_id="1", name="ops", owner="team", filter=(), settings={"url": "https://hooks.example.org/x"}
    )
    directory = Directory({"ops": OPS}, {"mail": MAIL}, {"1": subscription})
    path = resolve(directory, subscription_key("1"), PathDefaults())
    assert isinstance(path, DeliveryPath)
    assert (path.via, path.breaker_key, path.type) == (subscription, "subscription:1", "webhook")
    assert (path.limits.pool, path.limits.host) == (SlotPool.SUBSCRIPTIONS, "hooks.example.org")
