"""What needs somebody, in plain words and the worst first; on a quiet day, that there is nothing.

The order is by what it costs to wait: what keeps everything from being delivered, what keeps some, what waits for a
person, and last what may become one of these. Each line leads to the page on which one can do something about it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import quote

from fieldpost.central.watch.channels import ChannelState
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.sites import SiteState
from fieldpost.core.breaker import Breaker, BreakerState
from fieldpost.core.checks import DISK_FAILING_BYTES, DISK_WARNING_BYTES, Check, CheckVerdict
from fieldpost.core.kpi import KpiValues, Thresholds
from fieldpost.core.sites.health import SiteCondition
from fieldpost.front.console.kit.render import age, number, size

NAMED_MAX = 4
"""So many sites are named in one line; the others are counted."""
ALONE_MAX = 3
"""Up to so many sites with the same trouble have a line each."""
LOST_SHOWN = timedelta(days=1)
"""A node that was lost is told of for so long."""

_TURNING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
"""Marks by which an error that somebody else wrote would turn around the rest of our sentence."""


@dataclass(frozen=True, slots=True)
class Issue:
    tone: str
    """bad: it does harm now; wait: it waits for somebody, or may do harm."""
    text: str
    path: str | None = None
    """Where one can do something about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What there is to be judged."""

    as_of: datetime
    figures: KpiValues
    by: Thresholds
    sites: Sequence[SiteState]
    centre: Centre
    channels: Sequence[ChannelState]
    checks: Sequence[Check]
    keys: Sequence[str]
    """What is wrong with the keys of secrets."""


def troubles(seen: HealthInputs) -> list[Issue]:
    """All of them, the worst first."""
    return [replace(one, text=one.text.translate(_TURNING)) for look in _LOOKS for one in look(seen)]


def all_is_well(seen: HealthInputs) -> str:
    """What is said when there is no trouble: how much works, or what it takes to begin."""
    if not seen.sites and not seen.channels:
        return "Nothing is set up yet: it takes a channel, a list and a site."
    online = sum(site.standing is SiteCondition.ONLINE for site in seen.sites)
    new = sum(site.standing is SiteCondition.NEW for site in seen.sites)
    depth = seen.figures["queue_depth"]
    said = [
        "nothing is parked, stuck or overdue",
        f"{_count(online, 'site')} online" if online else "no site has reported yet",
        *([f"{new} not enrolled yet"] if new and online else []),
        f"{_count(len(seen.channels), 'channel')} healthy" if seen.channels else "no channel is set up yet",
        f"{number(depth)} on the way" if depth else "nothing waits",
    ]
    return f"All is well: {', '.join(said[:-1])}, and {said[-1]}."


def site_path(name: str) -> str:
    return f"/sites/{quote(name)}"


def _failing(seen: HealthInputs) -> Iterator[Issue]:
    for check in seen.checks:
        if check.verdict is CheckVerdict.FAILING:
            yield Issue("bad", f"Central cannot do its work ({check.name}): {check.detail}.")


def _overdue(seen: HealthInputs) -> Iterator[Issue]:
    if count := seen.figures["overdue"]:
        yield Issue(
            "bad",
            f"{_count(count, 'notification')} due for longer than {age(seen.by.overdue_after)} and in no node's hands:"
            " the nodes cannot keep up, or none dispatches.",
            "/notifications?overdue=true",
        )


def _blocked(seen: HealthInputs) -> Iterator[Issue]:
    for state in seen.channels:
        if state.is_blocked:
            name, error = state.channel.name, state.breaker.last_error or "it fails"
            held = f"{_count(state.held, 'notification')} held behind it. " if state.held else ""
            again = _next_probe(state.breaker, seen.as_of)
            yield Issue("bad", f"Channel {name} is blocked: {error}. {held}{again}.", f"/channels/{quote(name)}")


def _next_probe(breaker: Breaker, now: datetime) -> str:
    if breaker.state is BreakerState.HALF_OPEN:
        return "It is being tried again now"
    if breaker.open_until is None or breaker.open_until <= now:
        return "The next notification tries it again"
    return f"It is tried again in {age(breaker.open_until - now)}"


def _keys(seen: HealthInputs) -> Iterator[Issue]:
    for text in seen.keys:
        yield Issue("bad", f"{text[:1].upper()}{text[1:]}.", "/channels")


def _offline(seen: HealthInputs) -> Iterator[Issue]:
    found = [site for site in seen.sites if site.standing is SiteCondition.OFFLINE]
    if found:
        yield _unheard("bad", "offline", found, seen.as_of)


def _parked(seen: HealthInputs) -> Iterator[Issue]:
    if count := seen.figures["parked"]:
        yield Issue(
            "bad", f"{_count(count, 'notification')} parked, for a person to look at.", "/notifications?status=parked"
        )


def _failing_to_forward(seen: HealthInputs) -> Iterator[Issue]:
    found = [site for site in seen.sites if site.standing is SiteCondition.FAILING]
    if len(found) > ALONE_MAX:
        yield Issue("bad", f"{number(len(found))} sites cannot forward: {_names(found)}.", "/sites?state=failing")
        return
    for site in found:
        assert site.health is not None, "it said that it fails"
        report = site.health.report
        since = f" for {age(report.failing_for_s)}" if report.failing_for_s else ""
        why = report.forward_error or "it does not say why"
        waiting = f" {number(site.depth)} waiting there." if site.depth else ""
        yield Issue("bad", f"{site.record.name} cannot forward{since}: {why}.{waiting}", site_path(site.record.name))


def _stuck(seen: HealthInputs) -> Iterator[Issue]:
    if count := seen.figures["stuck"]:
        yield Issue(
            "wait",
            f"{_count(count, 'notification')} stuck: not delivered for longer than {age(seen.by.stuck_after)}.",
            "/notifications?stuck=true",
        )


def _rejected(seen: HealthInputs) -> Iterator[Issue]:
    found = [
        (site, site.health.report.rejected) for site in _heard(seen) if site.health and site.health.report.rejected
    ]
    if len(found) > ALONE_MAX:
        total = sum(count for _, count in found)
        yield Issue(
            "wait",
            f"{_count(total, 'notification')} in the rejected boxes of {number(len(found))} sites: central refused them"
            " for good.",
            "/sites?state=rejected",
        )
        return
    for site, count in found:
        them = "it" if count == 1 else "them"
        yield Issue(
            "wait",
            f"{_count(count, 'notification')} in the rejected box of {site.record.name}: central refused {them} for"
            " good.",
            f"{site_path(site.record.name)}/rejected",
        )


def _calls(seen: HealthInputs) -> Iterator[Issue]:
    if count := seen.figures["calls_parked"]:
        yield Issue("wait", f"{_count(count, 'cached call')} parked at the sites.", "/cached-calls?status=parked")


def _late(seen: HealthInputs) -> Iterator[Issue]:
    found = [site for site in seen.sites if site.standing is SiteCondition.LATE]
    if found:
        yield _unheard("wait", "late", found, seen.as_of)


def _disks(seen: HealthInputs) -> Iterator[Issue]:
    found = [
        (site, free)
        for site in _heard(seen)
        if site.health and (free := site.health.report.disk_free_bytes) is not None and free < DISK_WARNING_BYTES
    ]
    if len(found) > ALONE_MAX:
        names = _names([site for site, _ in found])
        yield Issue("wait", f"{number(len(found))} sites have less than 1 GB of disk left: {names}.", "/sites")
        return
    for site, free in found:
        tone = "bad" if free < DISK_FAILING_BYTES else "wait"
        yield Issue(tone, f"{site.record.name} has only {size(free)} of disk left.", site_path(site.record.name))


def lost_nodes(centre: Centre) -> list[Node]:
    """Nodes that ended without saying so, unless their host has a newer one that runs."""
    back = {node.record.host: node.record.started_at for node in reversed(centre.nodes) if _is_running(node)}
    return [
        node
        for node in centre.nodes
        if node.state is NodeState.LOST
        and centre.as_of - node.record.heartbeat_at < LOST_SHOWN
        and not (node.record.host in back and back[node.record.host] > node.record.started_at)
    ]


def _nodes(seen: HealthInputs) -> Iterator[Issue]:
    for node in lost_nodes(seen.centre):
        silent = age(seen.as_of - node.record.heartbeat_at)
        yield Issue("wait", f"The node at {node.record.host} was lost: not heard of for {silent}.")


def _warnings(seen: HealthInputs) -> Iterator[Issue]:
    for check in seen.checks:
        if check.verdict is CheckVerdict.WARNING:
            yield Issue("wait", f"{check.detail[:1].upper()}{check.detail[1:]}.")


def _counting(seen: HealthInputs) -> Iterator[Issue]:
    for state in seen.channels:
        if not state.is_blocked and (failures := state.breaker.failures):
            name, times = state.channel.name, "once" if failures == 1 else f"{failures} times in a row"
            yield Issue(
                "wait", f"Channel {name} failed {times}: {state.breaker.last_error}.", f"/channels/{quote(name)}"
            )


_LOOKS: tuple[Callable[[HealthInputs], Iterator[Issue]], ...] = (
    _failing,
    _overdue,
    _blocked,
    _keys,
    _offline,
    _parked,
    _failing_to_forward,
    _stuck,
    _rejected,
    _calls,
    _late,
    _disks,
    _nodes,
    _warnings,
    _counting,
)


def _unheard(tone: str, word: str, found: Sequence[SiteState], now: datetime) -> Issue:
    """One line for all that are offline, or late: they often have one cause."""
    silent = max((now - site.health.received_at for site in found if site.health), default=timedelta(0))
    waiting = sum(site.depth for site in found)
    there = f" {number(waiting)} waiting there when last heard." if waiting else ""
    if len(found) == 1:
        name = found[0].record.name
        return Issue(tone, f"{name} is {word}: not heard of for {age(silent)}.{there}", site_path(name))
    text = f"{number(len(found))} sites are {word}: {_names(found)}; not heard of for up to {age(silent)}.{there}"
    return Issue(tone, text, f"/sites?state={word}")


def _names(sites: Sequence[SiteState]) -> str:
    names = ", ".join(site.record.name for site in sites[:NAMED_MAX])
    return f"{names} and {number(len(sites) - NAMED_MAX)} more" if len(sites) > NAMED_MAX else names


def _heard(seen: HealthInputs) -> Iterator[SiteState]:
    return (site for site in seen.sites if site.standing is not SiteCondition.REVOKED)


def _is_running(node: Node) -> bool:
    return node.state is NodeState.RUNNING


def _count(count: float, noun: str) -> str:
    """`1 notification is`, `12 notifications are`."""
    return f"{number(count)} {noun} is" if count == 1 else f"{number(count)} {noun}s are"
