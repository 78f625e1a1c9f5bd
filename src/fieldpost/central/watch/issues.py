"""The one judgement of health: a list of issues, the worst first. Pure; every surface shows this list.

The API, the console's Health page and menu badges, `fieldpost doctor --remote` and the metrics display issues and judge
nothing themselves. Issues are ordered by severity, then by the number of notifications affected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import quote

from fieldpost.central.watch.channel_checks import ChannelWarning
from fieldpost.central.watch.channels import ChannelState
from fieldpost.central.watch.events.event_health import RELAY_SILENT, EventHealth
from fieldpost.central.watch.issue import (
    NAMES_MAX,
    SEPARATE_MAX,
    Issue,
    IssueCode,
    IssueSeverity,
    few,
    site_path,
)
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.pair_issues import pair_issues
from fieldpost.central.watch.sites import SiteState
from fieldpost.core.checks import DISK_FAILING_BYTES, DISK_WARNING_BYTES, Check, CheckVerdict
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.kpi import KpiValues, Thresholds
from fieldpost.core.quantities import age, number, size
from fieldpost.core.sites.health import SiteCondition
from fieldpost.core.sites.usage import WARNING_SHARE, SiteCeilings, SiteUsage

LOST_SHOWN = timedelta(days=1)
"""How long a lost node remains an issue."""
NODES_LINK = "/#nodes"

_DIRECTION_MARKS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
"""Unicode direction overrides: inside a quoted error they would reverse the rest of our sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """Everything that the judgement reads."""

    as_of: datetime
    figures: KpiValues
    """KPIs of lists and webhooks together."""
    by: Thresholds
    sites: Sequence[SiteState]
    centre: Centre
    channels: Sequence[ChannelState]
    checks: Sequence[Check]
    keys: Sequence[str]
    """Problems with the keys of secrets."""
    usage: Mapping[str, SiteUsage] = field(default_factory=dict)
    """The usage of the sites that may be close to a ceiling."""
    ceilings: SiteCeilings = field(default_factory=SiteCeilings)
    blocked_receivers: int = 0
    """How many subscriptions are blocked."""
    events: EventHealth = field(default_factory=EventHealth)
    channel_warnings: Sequence[ChannelWarning] = ()


def judge(inputs: HealthInputs) -> list[Issue]:
    """All issues, the worst first."""
    severities = list(IssueSeverity)
    found = [replace(issue, text=issue.text.translate(_DIRECTION_MARKS)) for rule in _RULES for issue in rule(inputs)]
    return sorted(found, key=lambda issue: (severities.index(issue.severity), -issue.affected))


def verdict(issues: Sequence[Issue]) -> str:
    """`well` without issues, else the worst severity."""
    return issues[0].severity.value if issues else "well"


def _checks(inputs: HealthInputs) -> Iterator[Issue]:
    for check in inputs.checks:
        code = f"central.{check.name}"
        if check.verdict is CheckVerdict.FAILING:
            text, waiting = f"Central cannot work ({check.name}): {check.detail}.", int(inputs.figures["queue_depth"])
            yield Issue(IssueCode(code), IssueSeverity.CRITICAL, text, NODES_LINK, waiting)
        elif check.verdict is CheckVerdict.WARNING:
            yield Issue(IssueCode(code), IssueSeverity.WARNING, _sentence(check.detail), NODES_LINK)


def _overdue(inputs: HealthInputs) -> Iterator[Issue]:
    if count := int(inputs.figures["overdue"]):
        text = (
            f"{_count(count, 'notification')} overdue: due for more than {age(inputs.by.overdue_after)} and not claimed"
            " by any node. The nodes are too slow, or none is dispatching."
        )
        yield Issue(IssueCode.OVERDUE, IssueSeverity.ERROR, text, "/notifications?overdue=true", count, count)


def _blocked(inputs: HealthInputs) -> Iterator[Issue]:
    for state in inputs.channels:
        if state.is_blocked:
            held = f" {_count(state.held, 'notification')} held." if state.held else ""
            reason, probe = state.breaker.last_error or "it fails", _next_probe(state.breaker, inputs.as_of)
            text = f"Channel {state.channel.name} is blocked: {reason}.{held} {probe}."
            yield Issue(
                IssueCode.CHANNEL_BLOCKED, IssueSeverity.ERROR, text, _channel_path(state.channel.name), state.held
            )
        elif blocked := state.blocked_lists:
            held = f" {_count(state.held, 'notification')} held." if state.held else ""
            names = ", ".join(blocked[:3]) + (f" and {len(blocked) - 3} more" if len(blocked) > 3 else "")
            reason = state.list_breakers[blocked[0]].last_error or "it fails"
            lists = f"list {names} is" if len(blocked) == 1 else f"the lists {names} are"
            text = f"Channel {state.channel.name}: {lists} blocked: {reason}.{held}"
            yield Issue(
                IssueCode.CHANNEL_BLOCKED, IssueSeverity.ERROR, text, _channel_path(state.channel.name), state.held
            )


def _next_probe(breaker: Breaker, now: datetime) -> str:
    if breaker.state is BreakerState.HALF_OPEN:
        return "A probe is in progress"
    if breaker.open_until is None or breaker.open_until < now + timedelta(seconds=1):
        return "The next notification is the probe"
    return f"Next probe in {age(breaker.open_until - now)}"


def _keys(inputs: HealthInputs) -> Iterator[Issue]:
    for text in inputs.keys:
        yield Issue(IssueCode.SECRETS, IssueSeverity.ERROR, _sentence(text), "/channels")


def _settings(inputs: HealthInputs) -> Iterator[Issue]:
    """Settings that are probably a mistake: some with their text, more of them counted."""
    kinds = (
        (IssueCode.CHANNEL_SETTINGS, "channel", "/channels", [one for one in inputs.channel_warnings if one.channel]),
        (IssueCode.LIST_TARGETS, "list", "/lists", [one for one in inputs.channel_warnings if one.list_name]),
    )
    for code, kind, path, found in kinds:
        names = [one.channel or one.list_name or "" for one in found]
        if len(found) <= SEPARATE_MAX:
            for name, one in zip(names, found, strict=True):
                link = f"{path}/{quote(name, safe='')}"
                yield Issue(code, IssueSeverity.WARNING, _sentence(one.text), link)
        else:
            text = f"{number(len(found))} warnings about {kind}s: {few(sorted(set(names)))}. The first: {found[0].text}"
            yield Issue(code, IssueSeverity.WARNING, _sentence(text), path, subjects=len(found))


def _parked(inputs: HealthInputs) -> Iterator[Issue]:
    if count := int(inputs.figures["parked"]):
        text = f"{_count(count, 'notification')} parked until an operator retries or discards {_them(count)}."
        yield Issue(IssueCode.PARKED, IssueSeverity.ERROR, text, "/notifications?status=parked", count, count)


def _stuck(inputs: HealthInputs) -> Iterator[Issue]:
    if count := int(inputs.figures["stuck"]):
        text = f"{_count(count, 'notification')} stuck: undelivered for more than {age(inputs.by.stuck_after)}."
        yield Issue(IssueCode.STUCK, IssueSeverity.WARNING, text, "/notifications?stuck=true", count, count)


def _calls(inputs: HealthInputs) -> Iterator[Issue]:
    if count := int(inputs.figures["calls_parked"]):
        text = f"{_count(count, 'cached call')} parked at the sites."
        yield Issue(IssueCode.CALLS_PARKED, IssueSeverity.WARNING, text, "/cached-calls?status=parked", count, count)


def _receivers(inputs: HealthInputs) -> Iterator[Issue]:
    if count := inputs.blocked_receivers:
        text = f"{_count(count, 'webhook receiver')} blocked after failures; notifications to {_them(count)} are held."
        yield Issue(IssueCode.RECEIVER_BLOCKED, IssueSeverity.WARNING, text, "/unhealthy-receivers", subjects=count)
    if expiring := inputs.events.expiring:
        names = few([one.name for one in expiring])
        text = f"The token for the receiver has expired or will expire within an hour: {names}."
        yield Issue(IssueCode.RECEIVER_TOKEN, IssueSeverity.WARNING, text, "/subscriptions", subjects=len(expiring))


def _events(inputs: HealthInputs) -> Iterator[Issue]:
    found = inputs.events
    if found.unmatched:
        text = f"Events of the last day matched neither a route nor a subscription: {few(found.unmatched)}."
        link, count = "/try-routes", len(found.unmatched)
        yield Issue(IssueCode.EVENTS_UNMATCHED, IssueSeverity.WARNING, text, link, subjects=count)
    if found.waiting:
        count = sum(group.count for group in found.waiting)
        names = few([f"{group.topic} ({group.type})" for group in found.waiting])
        text = f"{_count(count, 'event')} waiting for a template: {names}."
        yield Issue(IssueCode.TEMPLATE_MISSING, IssueSeverity.ERROR, text, "/templates", subjects=len(found.waiting))
    elif found.without_template:
        text = f"Routes without a template: {few(found.without_template)}. Their events will wait."
        count = len(found.without_template)
        yield Issue(IssueCode.TEMPLATE_MISSING, IssueSeverity.WARNING, text, "/routes", subjects=count)
    silent = [one for one in found.outboxes if one.open_count and inputs.as_of - one.reported_at > RELAY_SILENT]
    if silent:
        rows, names = sum(one.open_count for one in silent), few([one.source for one in silent])
        text = f"No relay has reported for 5 minutes, with {number(rows)} open rows in the outbox: {names}."
        yield Issue(IssueCode.OUTBOX_SILENT, IssueSeverity.ERROR, text, "/events", rows, len(silent))


def _silent(inputs: HealthInputs) -> Iterator[Issue]:
    """One issue for all offline sites, one for all late and one for all stopped ones: they often have one cause."""
    for condition, code, severity in (
        (SiteCondition.OFFLINE, IssueCode.SITE_OFFLINE, IssueSeverity.ERROR),
        (SiteCondition.LATE, IssueCode.SITE_LATE, IssueSeverity.WARNING),
        (SiteCondition.STOPPED, IssueCode.SITE_STOPPED, IssueSeverity.WARNING),
    ):
        found = [site for site in inputs.sites if site.condition is condition]
        if not found:
            continue
        silence = age(max(inputs.as_of - site.heard_at for site in found if site.heard_at))
        waiting = _waiting(found)
        is_one = len(found) == 1
        reports = f"{'Its last report' if is_one else 'Their last reports'} counted {number(waiting)} waiting."
        silence = silence if is_one else f"up to {silence}"
        why = f"agent stopped {silence} ago" if condition is SiteCondition.STOPPED else f"no report for {silence}"
        if is_one:
            name = found[0].record.name
            text, link = f"{name} is {condition.value}: {why}.", site_path(name)
        else:
            text = f"{_sites(found)} are {condition.value}: {_names(found)}; {why}."
            link = f"/sites?state={condition.value}"
        text = f"{text} {reports}" if waiting else text
        yield Issue(code, severity, text, link, waiting, len(found))


def _failing_to_forward(inputs: HealthInputs) -> Iterator[Issue]:
    found = [site for site in inputs.sites if site.condition is SiteCondition.FAILING]
    code, severity = IssueCode.SITE_FAILING, IssueSeverity.ERROR
    if len(found) > SEPARATE_MAX:
        text, waiting = f"{_sites(found)} cannot forward: {_names(found)}.", _waiting(found)
        yield Issue(code, severity, text, "/sites?state=failing", waiting, len(found))
        return
    for site in found:
        assert site.health is not None, "only a report makes a site `failing`"
        report = site.health.report
        span = f" for {age(report.failing_for_s)}" if report.failing_for_s else ""
        waiting = _waiting([site])
        waiting_there = f" {number(waiting)} waiting there." if waiting else ""
        text = f"{site.record.name} has failed to forward{span}: {report.forward_error or 'no reason reported'}."
        yield Issue(code, severity, text + waiting_there, site_path(site.record.name), waiting)


def _rejected(inputs: HealthInputs) -> Iterator[Issue]:
    found = [(site, site.health.report.rejected) for site in _reporting(inputs) if site.health]
    found = [(site, count) for site, count in found if count]
    code, severity = IssueCode.SITE_REJECTED, IssueSeverity.WARNING
    if len(found) > SEPARATE_MAX:
        total = sum(count for _, count in found)
        where = f"the rejected boxes of {number(len(found))} sites"
        text = f"{_count(total, 'notification')} in {where}: central refused them permanently."
        yield Issue(code, severity, text, "/sites?state=rejected", total, len(found))
        return
    for site, count in found:
        where = f"the rejected box of {site.record.name}"
        text = f"{_count(count, 'notification')} in {where}: central refused {_them(count)} permanently."
        yield Issue(code, severity, text, f"{site_path(site.record.name)}/rejected", count)


def _disks(inputs: HealthInputs) -> Iterator[Issue]:
    free = [(site, site.health.report.disk_free_bytes) for site in _reporting(inputs) if site.health]
    low = [(site, left) for site, left in free if left is not None and left < DISK_WARNING_BYTES]
    for severity in (IssueSeverity.ERROR, IssueSeverity.WARNING):
        found = [(s, left) for s, left in low if (left < DISK_FAILING_BYTES) is (severity is IssueSeverity.ERROR)]
        if len(found) > SEPARATE_MAX:
            sites, most = [site for site, _ in found], max(left for _, left in found)
            text = f"{_sites(sites)} have at most {size(most)} of disk space left: {_names(sites)}."
            yield Issue(IssueCode.SITE_DISK, severity, text, "/sites", subjects=len(sites))
            continue
        for site, left in found:
            text = f"{site.record.name} has only {size(left)} of disk space left."
            yield Issue(IssueCode.SITE_DISK, severity, text, site_path(site.record.name))


def _full_sites(inputs: HealthInputs) -> Iterator[Issue]:
    for site, usage in inputs.usage.items():
        share = inputs.ceilings.share(usage)
        if share < WARNING_SHARE:
            continue
        what = f"{number(usage.rows)} undelivered notifications ({size(usage.bytes)})"
        link = f"/notifications?site={quote(site)}"
        if share >= 1:
            text = f"{site} has reached its maximum: {what}. Central accepts no more; the site keeps its notifications."
            yield Issue(IssueCode.SITE_FULL, IssueSeverity.ERROR, text, link, usage.rows)
        else:
            text = f"{site} is close to its maximum: {what}, {share:.0%} of it."
            yield Issue(IssueCode.SITE_FULL, IssueSeverity.WARNING, text, link, usage.rows)


def _pairs(inputs: HealthInputs) -> Iterator[Issue]:
    return pair_issues(list(_reporting(inputs)), inputs.as_of)


def lost_nodes(centre: Centre) -> list[Node]:
    """Nodes that disappeared within the last day, unless their host runs a newer node."""
    back = {n.record.host: n.record.started_at for n in reversed(centre.nodes) if n.state is NodeState.RUNNING}
    return [
        node
        for node in centre.nodes
        if node.state is NodeState.LOST
        and centre.as_of - node.record.heartbeat_at < LOST_SHOWN
        and not (node.record.host in back and back[node.record.host] > node.record.started_at)
    ]


def _nodes(inputs: HealthInputs) -> Iterator[Issue]:
    for node in lost_nodes(inputs.centre):
        silence = age(inputs.as_of - node.record.heartbeat_at)
        text = f"The node on {node.record.host} is lost: no heartbeat for {silence}."
        yield Issue(IssueCode.NODE_LOST, IssueSeverity.WARNING, text, NODES_LINK)


def _counting(inputs: HealthInputs) -> Iterator[Issue]:
    for state in inputs.channels:
        if not state.is_blocked and (failures := state.breaker.failures):
            name, times = state.channel.name, "once" if failures == 1 else f"{failures} times in a row"
            text = f"Channel {name} failed {times}: {state.breaker.last_error}."
            yield Issue(IssueCode.CHANNEL_FAILING, IssueSeverity.WARNING, text, _channel_path(name))


_RULES: tuple[Callable[[HealthInputs], Iterator[Issue]], ...] = (
    _checks,
    _overdue,
    _blocked,
    _keys,
    _silent,
    _parked,
    _failing_to_forward,
    _stuck,
    _rejected,
    _calls,
    _settings,
    _receivers,
    _events,
    _disks,
    _full_sites,
    _pairs,
    _nodes,
    _counting,
)
"""The order decides between issues of the same severity that affect the same number of notifications."""


def _reporting(inputs: HealthInputs) -> Iterator[SiteState]:
    return (site for site in inputs.sites if site.condition is not SiteCondition.REVOKED)


def _channel_path(name: str) -> str:
    return f"/channels/{quote(name)}"


def _sites(sites: Sequence[SiteState]) -> str:
    return f"{number(len(sites))} sites"


def _waiting(sites: Sequence[SiteState]) -> int:
    return sum(site.depth or 0 for site in sites)


def _names(sites: Sequence[SiteState]) -> str:
    """The first few names; sites with the most waiting messages come first."""
    names = ", ".join(site.record.name for site in sorted(sites, key=lambda site: -(site.depth or 0))[:NAMES_MAX])
    return f"{names} and {number(len(sites) - NAMES_MAX)} more" if len(sites) > NAMES_MAX else names


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}."


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _count(count: float, noun: str) -> str:
    """`1 notification is`, `12 notifications are`."""
    return f"{number(count)} {noun} is" if count == 1 else f"{number(count)} {noun}s are"
