"""The settings that decide where secrets are sent, and the lists whose secrets a change would send elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fieldpost.core.delivery.adapter import SettingField
from fieldpost.core.delivery.destination import destination_of, redirected_lists
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.secret import Secret

OURS, THEIRS, DEFAULT = {"url": "https://ours"}, {"url": "https://theirs"}, {"url": "https://default"}


@dataclass
class Keys:
    """A type whose targets are labels with a key, sent to the channel's URL."""

    has_own_urls: bool = False
    target_secret_name: str = "key"

    def check_target_secret(self, secret: Secret) -> Secret:
        return secret


@dataclass
class DescribedKeys(Keys):
    fields: Sequence[SettingField] = (
        SettingField(name="url", doc="", default="https://default", is_destination=True),
        SettingField(name="style", doc=""),
    )
    phases: Sequence[Any] = ()
    guide: str = ""


def to(list_: NotificationList, *channels: Channel) -> Directory:
    return Directory({list_.name: list_}, {one.name: one for one in channels})


def channel(settings: Mapping[str, object], name: str = "a", **more: Any) -> Channel:
    return Channel(name, "keys", settings, **more)


DUTY = NotificationList("duty", "keys")
TO_B = NotificationList("duty", "keys", "b")
BOTH = (channel(OURS), channel(THEIRS, "b"))


@pytest.mark.threat(32)
@pytest.mark.parametrize(
    ("before", "after", "is_redirected"),
    [
        (to(DUTY, channel(OURS)), to(DUTY, channel(OURS, max_retries=3)), False),
        (to(DUTY, channel(OURS)), to(DUTY, channel(THEIRS)), True),
        (to(DUTY, channel(OURS)), to(DUTY, channel(OURS | {"style": "text"})), False),
        (to(DUTY, channel(OURS)), to(TO_B, channel(OURS), channel(OURS, "b")), False),
        (to(DUTY, channel(OURS, is_default=True), channel(THEIRS, "b")), to(TO_B, *BOTH), True),
        (to(DUTY, channel(OURS, is_default=True)), to(DUTY, channel(THEIRS, "b", is_default=True)), True),
        (to(DUTY, channel(OURS)), to(DUTY, *BOTH), False),  # none is the default: it has no channel
        (to(DUTY, *BOTH), to(DUTY, channel(OURS)), True),
        (to(DUTY), to(DUTY, channel(THEIRS)), True),
        (to(DUTY), to(DUTY, channel(DEFAULT)), False),
        (Directory(), to(DUTY, channel(THEIRS)), False),
    ],
)
def test_secrets_are_redirected_if_the_place_of_their_channel_changes(
    before: Directory, after: Directory, is_redirected: bool
) -> None:
    assert redirected_lists(before, after, {"keys": DescribedKeys()}) == (["duty"] if is_redirected else [])
    assert redirected_lists(before, after, {"keys": DescribedKeys(has_own_urls=True)}) == [], "the URL is the secret"
    assert redirected_lists(before, after, {}) == []


@pytest.mark.threat(32)
def test_every_setting_counts_without_a_description() -> None:
    plain, described = Keys(), DescribedKeys()
    styled = channel(OURS | {"style": "text"})
    assert destination_of(described, styled) == OURS
    assert destination_of(plain, styled) == OURS | {"style": "text"}
    assert redirected_lists(to(DUTY, channel(OURS)), to(DUTY, styled), {"keys": plain}) == ["duty"]
