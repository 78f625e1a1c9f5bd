"""The judgement of health: one row per kind of issue, their order, and situations without issues."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.store.events.outbox_reports import OutboxReport
from fieldpost.central.store.events.withheld import WithheldGroup
from fieldpost.central.store.figures.nodes import NodeRecord
from fieldpost.central.store.sites.sites import SiteRecord
from fieldpost.central.watch.channel_checks import ChannelWarning
from fieldpost.central.watch.channels import ChannelState
from fieldpost.central.watch.events.event_health import EventHealth
from fieldpost.central.watch.issue import IssueCode
from fieldpost.central.watch.issues import HealthInputs, judge, verdict
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.sites import SiteState, worst_first
from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.delivery.breaker import Breaker, BreakerState, channel_key
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.kpi import NOTHING, Thresholds
from fieldpost.core.lists import Channel
from fieldpost.core.sites.health import Freshness, SiteHealth, SiteReport, link_state
from fieldpost.core.sites.usage import SiteUsage
from fieldpost.front.console.health import summary
from support.sample import MINUTE, NOW

ERP = Subscription(subscription_id="id", name="erp", owner="acme", filter=())


def site(name: str, heard: timedelta | None = timedelta(seconds=5), **report: Any) -> SiteState:
    """Last heard so long ago, or never."""
    health = None
    if heard is not None:
        health = SiteHealth(site=name, received_at=NOW - heard, report=SiteReport(**report), clock_offset_s=0.0)
    link = link_state(health, NOW, Freshness())
    return SiteState(SiteRecord(name, NOW - timedelta(days=9), NOW), link, health, None, 0)


def revoked(one: SiteState) -> SiteState:
    return replace(one, record=replace(one.record, revoked_at=NOW))


def channel(name: str, held: int = 0, **breaker: Any) -> ChannelState:
    return ChannelState(Channel(name, "email", {}), Breaker(channel_key(name), **breaker), held, (), is_tried=True)


def node(host: str, state: NodeState, started: timedelta, silent: timedelta = timedelta(0)) -> Node:
    record = NodeRecord(f"id of {host} {started}", host, "1", NOW - started, NOW - silent, None)
    return Node(record, state, False)


def inputs(figures: dict[str, float] | None = None, **more: Any) -> HealthInputs:
    """A quiet centre, but for what is given."""
    given: dict[str, Any] = {
        "sites": [site("north"), site("south")],
        "channels": [channel("mail")],
        "centre": Centre((), {}, NOW),
        "checks": [Check("store", CheckVerdict.OK, "the store answers")],
        "keys": [],
    }
    return HealthInputs(as_of=NOW, figures={**NOTHING, **(figures or {})}, by=Thresholds(), **given | more)


DAY = timedelta(days=1)
NORTH = site("north")
LOST = node("central-a", NodeState.LOST, DAY, 12 * MINUTE)
BLOCKED = channel(
    "relay",
    7,
    state=BreakerState.OPEN,
    failures=5,
    last_error="connection refused",
    open_until=NOW + timedelta(seconds=42),
)


def failing(check: str, word: str) -> HealthInputs:
    return inputs({"queue_depth": 3}, checks=[Check(check, CheckVerdict.FAILING, word)])


SITUATIONS: list[tuple[HealthInputs, str, str, str, str, int]] = [
    # inputs, code, severity, text, link, affected
    (failing("store", "full"), "central.store", "critical", "Central cannot work (store): full.", "/#nodes", 3),
    (
        failing("migrations", "old"),
        "central.migrations",
        "critical",
        "Central cannot work (migrations): old.",
        "/#nodes",
        3,
    ),
    (
        failing("dispatcher", "idle"),
        "central.dispatcher",
        "critical",
        "Central cannot work (dispatcher): idle.",
        "/#nodes",
        3,
    ),
    (
        inputs(checks=[Check("log", CheckVerdict.WARNING, "long log")]),
        "central.log",
        "warning",
        "Long log.",
        "/#nodes",
        0,
    ),
    (
        inputs(checks=[Check("leader", CheckVerdict.WARNING, "no leader")]),
        "central.leader",
        "warning",
        "No leader.",
        "/#nodes",
        0,
    ),
    (
        inputs(checks=[Check("audit", CheckVerdict.WARNING, "audit entries are not sealed")]),
        "central.audit",
        "warning",
        "Audit entries are not sealed.",
        "/#nodes",
        0,
    ),
    (
        inputs(channel_warnings=[ChannelWarning("channel sms: url begins with http://", channel="sms")]),
        *("channel.settings", "warning", "Channel sms: url begins with http://.", "/channels/sms", 0),
    ),
    (
        inputs(channel_warnings=[ChannelWarning(f"list a{n}: no hook", list_name=f"a{n}") for n in range(5)]),
        *("list.targets", "warning", "5 warnings about lists: a0, a1, a2, a3 and 1 more. The first: list a0: no hook."),
        *("/lists", 0),
    ),
    (
        inputs({"overdue": 2}),
        *("notifications.overdue", "error"),
        "2 notifications are overdue: due for more than 20 s and not claimed by any node. The nodes are too slow, or"
        " none is dispatching.",
        *("/notifications?overdue=true", 2),
    ),
    (
        inputs({"parked": 64}),
        *("notifications.parked", "error"),
        "64 notifications are parked until an operator retries or discards them.",
        *("/notifications?status=parked", 64),
    ),
    (
        inputs({"stuck": 1}),
        *("notifications.stuck", "warning"),
        "1 notification is stuck: undelivered for more than 10 min.",
        *("/notifications?stuck=true", 1),
    ),
    (
        inputs({"calls_parked": 3}),
        *("calls.parked", "warning", "3 cached calls are parked at the sites.", "/cached-calls?status=parked", 3),
    ),
    (
        inputs(blocked_receivers=2),
        *("receiver.blocked", "warning"),
        "2 webhook receivers are blocked after failures; notifications to them are held.",
        *("/unhealthy-receivers", 0),
    ),
    (
        inputs(events=EventHealth(expiring=[ERP])),
        *("receiver.token", "warning", "The token for the receiver has expired or will expire within an hour: erp."),
        *("/subscriptions", 0),
    ),
    (
        inputs(events=EventHealth(unmatched=["a", "b", "c", "d", "e"])),
        *("events.unmatched", "warning"),
        "Events of the last day matched neither a route nor a subscription: a, b, c, d and 1 more.",
        *("/try-routes", 0),
    ),
    (
        inputs(events=EventHealth(waiting=[WithheldGroup("DOWN", "email", 12, NOW)], without_template=["down"])),
        *("template.missing", "error", "12 events are waiting for a template: DOWN (email).", "/templates", 0),
    ),
    (
        inputs(events=EventHealth(without_template=["down"])),
        *("template.missing", "warning", "Routes without a template: down. Their events will wait.", "/routes", 0),
    ),
    (
        inputs(events=EventHealth(outboxes=[OutboxReport("app:shop", 7, NOW, NOW - timedelta(seconds=301))])),
        *("outbox.silent", "error"),
        "No relay has reported for 5 minutes, with 7 open rows in the outbox: app:shop.",
        *("/events", 7),
    ),
    (
        inputs(channels=[BLOCKED]),
        *("channel.blocked", "error"),
        "Channel relay is blocked: connection refused. 7 notifications are held. Next probe in 42 s.",
        *("/channels/relay", 7),
    ),
    (
        inputs(channels=[channel("relay", state=BreakerState.HALF_OPEN, failures=5, last_error="refused")]),
        *("channel.blocked", "error", "Channel relay is blocked: refused. A probe is in progress."),
        *("/channels/relay", 0),
    ),
    (
        inputs(channels=[channel("mail", failures=2, last_error="timed out")]),
        *("channel.failing", "warning", "Channel mail failed 2 times in a row: timed out.", "/channels/mail", 0),
    ),
    (
        inputs(keys=["the secret of channel 'mail' cannot be opened"]),
        *("secrets.unreadable", "error", "The secret of channel 'mail' cannot be opened.", "/channels", 0),
    ),
    (
        inputs(sites=[site("a b", 17 * MINUTE, backlog={"notification": 57})]),
        *("site.offline", "error", "a b is offline: no report for 17 min. Its last report counted 57 waiting."),
        *("/sites/a%20b", 57),
    ),
    (
        inputs(sites=[site(f"s{number}", number * MINUTE, backlog={"notification": 2}) for number in range(2, 8)]),
        *("site.offline", "error"),
        "6 sites are offline: s2, s3, s4, s5 and 2 more; no report for up to 7 min. Their last reports counted"
        " 12 waiting.",
        *("/sites?state=offline", 12),
    ),
    (
        inputs(sites=[site("mine", 5 * MINUTE, is_stopping=True, backlog={"notification": 1})]),
        *("site.stopped", "warning", "mine is stopped: agent stopped 5 min ago. Its last report counted 1 waiting."),
        *("/sites/mine", 1),
    ),
    (
        inputs(sites=[site("quarry", timedelta(seconds=50))]),
        *("site.late", "warning", "quarry is late: no report for 50 s.", "/sites/quarry", 0),
    ),
    (
        inputs(
            sites=[site("h", is_forwarding=False, forward_error="429", failing_for_s=95.0, backlog={"notification": 9})]
        ),
        *("site.failing", "error", "h has failed to forward for 1 min: 429. 9 waiting there.", "/sites/h", 9),
    ),
    (
        inputs(sites=[site(f"s{number}", is_forwarding=False) for number in range(5)]),
        *("site.failing", "error", "5 sites cannot forward: s0, s1, s2, s3 and 1 more.", "/sites?state=failing", 0),
    ),
    (
        inputs(sites=[site("north", rejected=1)]),
        *("site.rejected", "warning"),
        "1 notification is in the rejected box of north: central refused it permanently.",
        *("/sites/north/rejected", 1),
    ),
    (
        inputs(sites=[site(f"s{number}", rejected=2) for number in range(5)]),
        *("site.rejected", "warning"),
        "10 notifications are in the rejected boxes of 5 sites: central refused them permanently.",
        *("/sites?state=rejected", 10),
    ),
    (
        inputs(sites=[site("a", disk_free_bytes=50_000_000), site("b", disk_free_bytes=9_000_000_000)]),
        *("site.disk", "error", "a has only 50.0 MB of disk space left.", "/sites/a", 0),
    ),
    (
        inputs(sites=[site(f"s{number}", disk_free_bytes=900_000_000) for number in range(4)]),
        *("site.disk", "warning", "4 sites have at most 900 MB of disk space left: s0, s1, s2, s3.", "/sites", 0),
    ),
    (
        inputs(centre=Centre((LOST,), {}, NOW)),
        *("node.lost", "warning", "The node on central-a is lost: no heartbeat for 12 min.", "/#nodes", 0),
    ),
    (
        inputs(usage={"north": SiteUsage(1_700_000, 10**9), "south": SiteUsage(1_000_000, 10**9)}),
        *("site.full", "warning"),
        "north is close to its maximum: 1\u202f700\u202f000 undelivered notifications (1.0 GB), 85% of it.",
        *("/notifications?site=north", 1_700_000),
    ),
]


@pytest.mark.parametrize(
    ("situation", "code", "severity", "text", "link", "affected"), SITUATIONS, ids=[row[1] for row in SITUATIONS]
)
def test_one_situation_is_one_issue(
    situation: HealthInputs, code: str, severity: str, text: str, link: str, affected: int
) -> None:
    (issue,) = judge(situation)
    assert (issue.code, issue.severity, issue.text, issue.link, issue.affected) == (
        code,
        severity,
        text,
        link,
        affected,
    )
    assert verdict([issue]) == severity


def test_a_text_names_the_sites_with_the_most_waiting_messages_first() -> None:
    sites = [site(f"s{number}", 5 * MINUTE, backlog={"notification": number}) for number in range(6)]
    (issue,) = judge(inputs(sites=sites))
    assert "6 sites are offline: s5, s4, s3, s2 and 2 more;" in issue.text


def test_every_code_has_a_situation() -> None:
    of_pairs = {"site.standby", "site.lag", "site.epoch_taken", "site.definitions"}  # test_pair_issues.py
    assert {row[1] for row in SITUATIONS} | of_pairs == {code.value for code in IssueCode}


WITHOUT_ISSUES = {
    "quiet": inputs(),
    "revoked site": inputs(sites=[replace(NORTH, record=replace(NORTH.record, revoked_at=NOW))]),
    "site that never reported": inputs(sites=[site("new", None)]),
    "lost node whose host runs again": inputs(
        centre=Centre((node("central-a", NodeState.RUNNING, MINUTE), LOST), {}, NOW)
    ),
    "node lost long ago": inputs(centre=Centre((node("central-b", NodeState.LOST, 9 * DAY, 2 * DAY),), {}, NOW)),
}


@pytest.mark.parametrize("situation", WITHOUT_ISSUES.values(), ids=WITHOUT_ISSUES)
def test_healthy_situations_have_no_issues(situation: HealthInputs) -> None:
    assert (judge(situation), verdict([])) == ([], "well")


def test_the_worst_issue_is_first_and_within_a_severity_the_one_that_affects_most() -> None:
    situation = inputs(
        {"overdue": 2, "parked": 64, "stuck": 1, "calls_parked": 3, "queue_depth": 2},
        sites=[site("quarry", timedelta(seconds=50)), site("island", 17 * MINUTE, backlog={"notification": 57})],
        channels=[BLOCKED],
        checks=[Check("leader", CheckVerdict.WARNING, "x"), Check("dispatcher", CheckVerdict.FAILING, "x")],
    )
    assert [(issue.code.value, issue.affected) for issue in judge(situation)] == [
        ("central.dispatcher", 2),
        ("notifications.parked", 64),
        ("site.offline", 57),
        ("channel.blocked", 7),
        ("notifications.overdue", 2),
        ("calls.parked", 3),
        ("notifications.stuck", 1),
        ("central.leader", 0),
        ("site.late", 0),
    ]
    assert verdict(judge(situation)) == "critical"


def test_a_quoted_error_cannot_reverse_the_sentence_around_it() -> None:
    (issue,) = judge(inputs(keys=["bad \u202e key"]))
    assert issue.text == "Bad \ufffd key."


def test_the_summary_of_an_installation_without_issues_says_what_works_or_is_missing() -> None:
    assert summary(inputs()) == (
        "All is well: no parked, stuck or overdue notifications, 2 sites online, 1 channel healthy, the queue is empty."
    )
    assert "12 in the queue" in summary(inputs({"queue_depth": 12}))
    assert summary(inputs(sites=[], channels=[])) == "Nothing is set up yet. Add a channel, a list and a site."
    assert "no site has reported yet" in summary(inputs(sites=[]))
    assert "no channel is set up yet" in summary(inputs(channels=[]))


def test_sites_are_ordered_by_severity_then_by_queue_length() -> None:
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


def test_relay_that_reported_recently_or_has_no_open_rows_is_not_an_issue() -> None:
    late, now = NOW - timedelta(hours=1), NOW - timedelta(seconds=300)
    outboxes = [OutboxReport("app:a", 0, None, late), OutboxReport("app:b", 7, NOW, now)]
    assert judge(inputs(events=EventHealth(outboxes=outboxes))) == []
