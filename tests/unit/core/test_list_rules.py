"""Which sites a list hears, and what changes between two states of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.core.delivery import routing
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.lists import Channel, ListChange, NotificationList, compare
from fieldpost.core.notification import list_key

OPS = NotificationList("ops", "email", targets=("a@x.example", "b@x.example"))


def refuse_site(one: NotificationList, site: str) -> PermanentFailure | None:
    directory = routing.Directory({one.name: one}, {"mail": Channel("mail", "email", {})})
    path = routing.resolve(directory, list_key(one.name), routing.PathDefaults())
    assert isinstance(path, routing.DeliveryPath)
    return routing.refuse_site(path, site)


@pytest.mark.threat(5)
def test_list_without_sites_accepts_every_site() -> None:
    assert refuse_site(OPS, "plant-9") is None


@pytest.mark.threat(5)
def test_list_with_sites_accepts_only_those_and_names_them() -> None:
    narrow = replace(OPS, allowed_sites=("plant-1", "plant-2"))
    assert refuse_site(narrow, "plant-1") is None
    refusal = refuse_site(narrow, "plant-9")
    assert refusal is not None
    assert refusal.error == ("site 'plant-9' may not send to list 'ops'; allowed sites: 'plant-1', 'plant-2'")
    assert refusal.phase == "resolve"


def test_many_allowed_sites_are_named_in_part() -> None:
    refusal = refuse_site(replace(OPS, allowed_sites=tuple(f"s{n}" for n in range(900))), "x")
    assert refusal is not None
    assert refusal.error.endswith("'s4' and others")


def test_unreadable_sites_reject_every_site() -> None:
    refusal = refuse_site(replace(OPS, allowed_sites=()), "plant-1")
    assert refusal is not None
    assert refusal.error.endswith("none")


def test_a_new_list_adds_all_its_targets() -> None:
    assert compare(None, OPS) == ListChange("ops", True, OPS.targets)


def test_the_same_list_changes_nothing() -> None:
    assert compare(OPS, replace(OPS, version=7, targets=tuple(reversed(OPS.targets)))).is_empty


def test_change_names_added_and_removed_targets_and_properties() -> None:
    after = NotificationList(
        "ops",
        "email",
        "relay",
        ("b@x.example", "c@x.example"),
        True,
        retry=Fixed(timedelta(seconds=5), 3),
        allowed_sites=("s",),
    )
    assert compare(OPS, after) == ListChange(
        "ops", False, ("c@x.example",), ("a@x.example",), ("channel", "park_uncertain", "retry", "allowed_sites")
    )
