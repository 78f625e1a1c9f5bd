"""The judgement of pairs: one row per kind of issue, and situations without issues."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.store.sites.sites import SiteRecord
from fieldpost.central.watch.pair_issues import pair_issues
from fieldpost.central.watch.sites import SiteNodeState, SiteState
from fieldpost.core.pair.switch import EpochSwitch, SwitchCause
from fieldpost.core.sites.health import Freshness, PairReport, SiteHealth, SiteReport, best_link, link_state
from support.sample import NOW

pytestmark = [pytest.mark.req("DEC-38")]

SOON = timedelta(seconds=5)


def node(number: int, heard: timedelta | None = SOON, *, is_paired: bool = True, **report: Any) -> SiteNodeState:
    """Last heard so long ago, or never. Node 0 leads."""
    health = None
    if heard is not None:
        pair = PairReport(**{"peer_age_s": 0.5} | report.pop("pair", {})) if is_paired else None
        given = SiteReport(**report, pair=pair)
        health = SiteHealth(site="north", received_at=NOW - heard, report=given, clock_offset_s=0.0)
    added_at = NOW - timedelta(days=1)
    return SiteNodeState(number, number == 0, link_state(health, NOW, Freshness()), added_at, health)


def pair(*nodes: SiteNodeState, name: str = "north", **more: Any) -> SiteState:
    nodes = nodes or (node(0), node(1))
    link = best_link(one.link for one in nodes)
    record = SiteRecord(name, NOW - timedelta(days=9), NOW)
    return SiteState(record, link, nodes[0].health, None, 0, nodes, 4, **more)


def switch(cause: SwitchCause, ago: timedelta = timedelta(hours=1), **more: Any) -> EpochSwitch:
    return EpochSwitch(site="north", epoch=5, cause=cause, recorded_at=NOW - ago, **more)


def found(*sites: SiteState) -> list[tuple[str, str]]:
    return [(issue.code.value, issue.text) for issue in pair_issues(sites, NOW)]


def test_healthy_pair_and_single_site_have_no_issue() -> None:
    single = SiteState(SiteRecord("south", NOW, NOW), link_state(None, NOW, Freshness()), None, None, 0)
    granted = pair(switch=switch(SwitchCause.GRANTED))
    old = pair(switch=switch(SwitchCause.SILENCE, timedelta(days=1)))
    at_limit = pair(node(0, pair={"lag_s": 5.0, "lag_changes": 9}), node(1))
    assert found(single, granted, old, at_limit) == []


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ((node(0), node(1, None)), "Node 1, the standby of north, has never reported."),
        ((node(0), node(1, timedelta(minutes=5))), "Node 1, the standby of north, has not reported for 5 min."),
        (
            (node(0), node(1, timedelta(minutes=5), is_stopping=True)),
            "Node 1, the standby of north, was stopped 5 min ago.",
        ),
        ((node(0, timedelta(minutes=5)), node(1)), "Node 0, the leader of north, has not reported for 5 min."),
        (
            (node(0), node(1, is_paired=False)),
            "Node 1 of north does not run as part of a pair. Set it up with fieldpost site pair.",
        ),
        (
            (node(0, pair={"peer_age_s": 90.0}), node(1)),
            "The nodes of north have had no connection for 1 min: changes are not copied.",
        ),
        (
            (node(0, pair={"peer_age_s": None}), node(1)),
            "The nodes of north have had no connection: changes are not copied.",
        ),
    ],
)
@pytest.mark.fault(9)
def test_missing_standby_is_an_issue(nodes: tuple[SiteNodeState, ...], text: str) -> None:
    assert found(pair(*nodes)) == [("site.standby", text)]


@pytest.mark.fault(9)
def test_lag_over_five_seconds_is_an_issue() -> None:
    late = pair(node(0, pair={"lag_s": 12.0, "lag_changes": 3400}), node(1))
    assert found(late) == [("site.lag", "The standby of north lags by 12 s (3\u202f400 changes).")]


@pytest.mark.req("DEC-39")
@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (switch(SwitchCause.TAKEN), "it has not reported why yet"),
        (switch(SwitchCause.SILENCE), "the other node was silent, and the pair was already without central"),
        (switch(SwitchCause.CUT_OFF), "it had heard neither central nor the other node for ten minutes"),
        (switch(SwitchCause.HANDED_OVER), "node 0 handed over to it, and central did not answer"),
        (switch(SwitchCause.FORCED, reason="disk fails"), "a person forced it: disk fails"),
    ],
)
def test_epoch_taken_without_central_is_an_issue_for_a_day(taken: EpochSwitch, why: str) -> None:
    text = f"Node 1 of north took the lead without central (epoch 5): {why}."
    assert found(pair(switch=taken)) == [("site.epoch_taken", text)]
    assert found(pair(switch=replace(taken, recorded_at=NOW - timedelta(days=1)))) == []


def test_different_definitions_are_an_issue() -> None:
    differing = pair(node(0, pair={"differences": ("external.erp", "secret erp.token")}), node(1))
    assert found(differing) == [("site.definitions", "The nodes of north differ: external.erp, secret erp.token.")]


def test_offline_site_has_no_issue_as_a_pair() -> None:
    hour = timedelta(hours=1)
    assert found(pair(node(0, hour, pair={"lag_s": 99.0}), node(1, hour))) == []


def test_many_sites_share_an_issue() -> None:
    sites = [pair(node(0), node(1, None), name=f"site-{number}") for number in range(5)]
    assert found(*sites) == [
        ("site.standby", "5 sites run without a standby: site-0, site-1, site-2, site-3 and 1 more.")
    ]
