"""What needs somebody, in plain words and the worst first."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from fieldpost.central.store.figures.nodes import NodeRecord
from fieldpost.central.store.sites.sites import SiteRecord
from fieldpost.central.watch.channels import ChannelState
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.sites import SiteState, worst_first
from fieldpost.core.breaker import Breaker, BreakerState, channel_key
from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.kpi import NOTHING, Thresholds
from fieldpost.core.lists import Channel
from fieldpost.core.sites.health import Freshness, SiteHealth, SiteReport, link_state
from fieldpost.front.console.issues import HealthInputs, all_is_well, troubles
from support.sample import MINUTE, NOW


def site(name: str, heard: timedelta | None = timedelta(seconds=5), **report: Any) -> SiteState:
    """Last heard so long ago, or never."""
    health = None
    if heard is not None:
        health = SiteHealth(site=name, received_at=NOW - heard, report=SiteReport(**report), clock_offset_s=0.0)
    link = link_state(health.received_at if health else None, NOW, Freshness())
    return SiteState(SiteRecord(name, NOW - timedelta(days=9), NOW), link, health, None, 0)


def revoked(one: SiteState) -> SiteState:
    return replace(one, record=replace(one.record, revoked_at=NOW))


def channel(name: str, held: int = 0, **breaker: Any) -> ChannelState:
    return ChannelState(Channel(name, "email", {}), Breaker(channel_key(name), **breaker), held, ())


def node(host: str, state: NodeState, started: timedelta, silent: timedelta = timedelta(0)) -> Node:
    record = NodeRecord(f"id of {host} {started}", host, "1", NOW - started, NOW - silent, None)
    return Node(record, state, False)


def seen(figures: dict[str, float] | None = None, **more: Any) -> HealthInputs:
    """A quiet centre, but for what is given."""
    given: dict[str, Any] = {
        "sites": [site("north"), site("south")],
        "channels": [channel("mail")],
        "centre": Centre((), {}, NOW),
        "checks": [Check("store", CheckVerdict.OK, "the store answers")],
        "keys": [],
    }
    return HealthInputs(as_of=NOW, figures={**NOTHING, **(figures or {})}, by=Thresholds(), **given | more)


def said(judged: HealthInputs) -> list[str]:
    return [trouble.text for trouble in troubles(judged)]


BLOCKED = channel(
    "relay",
    7,
    state=BreakerState.OPEN,
    failures=5,
    last_error="connection refused",
    open_until=NOW + timedelta(seconds=42),
)


def test_on_a_quiet_day_one_sentence_says_that_all_is_well() -> None:
    assert troubles(seen()) == []
    assert all_is_well(seen()) == (
        "All is well: nothing is parked, stuck or overdue, 2 sites are online, 1 channel is healthy, and nothing waits."
    )
    assert "12 on the way" in all_is_well(seen({"queue_depth": 12}))


def test_a_fresh_centre_says_what_is_not_there_yet() -> None:
    assert all_is_well(seen(sites=[], channels=[])) == "Nothing is set up yet: it takes a channel, a list and a site."
    assert "no site has reported yet" in all_is_well(seen(sites=[]))
    assert "no channel is set up yet" in all_is_well(seen(channels=[]))


def test_the_worst_comes_first() -> None:
    judged = seen(
        {"overdue": 2, "parked": 64, "stuck": 1, "calls_parked": 3},
        sites=[
            site("quarry", timedelta(seconds=50)),
            site("island", 17 * MINUTE, backlog={"notification": 57}),
            site("harbour", is_forwarding=False, forward_error="429", failing_for_s=95.0, backlog={"notification": 9}),
            site("north", rejected=1),
        ],
        channels=[BLOCKED],
        keys=["the secret of channel 'mail' cannot be opened"],
        checks=[
            Check("dispatcher", CheckVerdict.FAILING, "silent"),
            Check("leader", CheckVerdict.WARNING, "no node leads"),
        ],
    )
    assert said(judged) == [
        "Central cannot do its work (dispatcher): silent.",
        "2 notifications are due for longer than 20 s and in no node's hands: the nodes cannot keep up, or none"
        " dispatches.",
        "Channel relay is blocked: connection refused. 7 notifications are held behind it. It is tried again in 42 s.",
        "The secret of channel 'mail' cannot be opened.",
        "island is offline: not heard of for 17 min. 57 waiting there when last heard.",
        "64 notifications are parked, for a person to look at.",
        "harbour cannot forward for 1 min: 429. 9 waiting there.",
        "1 notification is stuck: not delivered for longer than 10 min.",
        "1 notification is in the rejected box of north: central refused it for good.",
        "3 cached calls are parked at the sites.",
        "quarry is late: not heard of for 50 s.",
        "No node leads.",
    ]
    assert {trouble.tone for trouble in troubles(judged)[:7]} == {"bad"}
    assert {trouble.tone for trouble in troubles(judged)[7:]} == {"wait"}


def test_each_leads_to_where_it_can_be_mended() -> None:
    figures = {"overdue": 1, "parked": 1, "stuck": 1}
    judged = seen(figures, channels=[BLOCKED], sites=[site("a b", 17 * MINUTE, rejected=1)])
    assert [trouble.path for trouble in troubles(judged)] == [
        "/notifications?overdue=true",
        "/channels/relay",
        "/sites/a%20b",
        "/notifications?status=parked",
        "/notifications?stuck=true",
        "/sites/a%20b/rejected",
    ]


def test_many_sites_with_one_trouble_are_one_line() -> None:
    away = [site(f"s{number}", number * MINUTE) for number in range(2, 8)]
    (offline,) = troubles(seen(sites=away))
    assert offline.text == "6 sites are offline: s2, s3, s4, s5 and 2 more; not heard of for up to 7 min."
    assert offline.path == "/sites?state=offline"
    failing = [site(f"s{number}", is_forwarding=False, rejected=2) for number in range(5)]
    assert said(seen(sites=failing)) == [
        "5 sites cannot forward: s0, s1, s2, s3 and 1 more.",
        "10 notifications are in the rejected boxes of 5 sites: central refused them for good.",
    ]


def test_a_revoked_site_and_one_that_never_came_are_no_trouble() -> None:
    assert troubles(seen(sites=[revoked(site("mill", 17 * MINUTE, rejected=3)), site("new", None)])) == []


def test_a_disk_that_fills_is_told_before_it_is_full() -> None:
    full, filling = site("a", disk_free_bytes=50_000_000), site("b", disk_free_bytes=900_000_000)
    found = troubles(seen(sites=[full, filling, site("c", disk_free_bytes=9_000_000_000)]))
    assert [(one.tone, one.text) for one in found] == [
        ("bad", "a has only 50.0 MB of disk left."),
        ("wait", "b has only 900 MB of disk left."),
    ]


def test_a_lost_node_is_told_unless_its_host_is_back() -> None:
    day = timedelta(days=1)
    gone = node("central-a", NodeState.LOST, day, 12 * MINUTE)
    assert said(seen(centre=Centre((gone,), {}, NOW))) == ["The node at central-a was lost: not heard of for 12 min."]
    back = node("central-a", NodeState.RUNNING, MINUTE)
    assert said(seen(centre=Centre((back, gone), {}, NOW))) == []
    long_ago = node("central-b", NodeState.LOST, 9 * day, 2 * day)
    assert said(seen(centre=Centre((long_ago,), {}, NOW))) == []


def test_a_channel_that_begins_to_fail_is_told_last() -> None:
    counting = channel("mail", failures=2, last_error="timed out")
    assert (
        said(seen({"calls_parked": 1}, channels=[counting]))[-1] == "Channel mail failed 2 times in a row: timed out."
    )


def test_a_probe_on_its_way_is_told_as_such() -> None:
    probing = channel("relay", state=BreakerState.HALF_OPEN, failures=5, last_error="refused")
    assert said(seen(channels=[probing])) == ["Channel relay is blocked: refused. It is being tried again now."]


def test_sites_are_ordered_by_trouble_then_by_what_waits_there() -> None:
    sites = [
        site("a"),
        site("busy", backlog={"notification": 5}),
        revoked(site("z")),
        site("new", None),
        site("failing", is_forwarding=False),
        site("late", timedelta(seconds=50)),
        site("away", 5 * MINUTE),
        site("away-busy", 5 * MINUTE, backlog={"external_call": 1}),
    ]
    assert [one.record.name for one in worst_first(sites)] == [
        *("away-busy", "away", "late", "failing", "busy", "a", "new", "z")
    ]
