"""Issues of sites with two nodes: a missing standby, a late copy, an epoch taken without central, differences."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from fieldpost.central.watch.issue import SEPARATE_MAX, Issue, IssueCode, IssueSeverity, few, site_path
from fieldpost.central.watch.sites import SiteNodeState, SiteState
from fieldpost.core.pair.switch import EpochSwitch, SwitchCause
from fieldpost.core.quantities import age, number
from fieldpost.core.sites.health import LinkState

LAG_MAX_S = 5.0
"""A copy that is later than this is an issue."""
PEER_SILENT_S = 30.0
"""The nodes send each other a heartbeat every second."""
TAKEN_SHOWN = timedelta(days=1)
"""How long an epoch taken without central remains an issue."""

_CAUSES = {
    SwitchCause.TAKEN: "it has not reported why yet",
    SwitchCause.SILENCE: "the other node was silent, and the pair was already without central",
    SwitchCause.CUT_OFF: "it had heard neither central nor the other node for ten minutes",
}

_Finding = tuple[SiteState, str]


def pair_issues(sites: Sequence[SiteState], as_of: datetime) -> Iterator[Issue]:
    """The issues of the pairs among these sites. A site without any link has a worse issue already."""
    pairs = [site for site in sites if site.is_pair and site.link is not LinkState.OFFLINE]
    standbys = [(site, text) for site in pairs if (text := _missing(site, as_of))]
    yield from _each(IssueCode.SITE_STANDBY, "sites run without a standby", standbys)
    lags = [(site, text) for site in pairs if (text := _lag(site))]
    yield from _each(IssueCode.SITE_LAG, f"sites have a standby that lags by more than {LAG_MAX_S:.0f} s", lags)
    taken = [(site, _taken(site, site.switch)) for site in pairs if site.switch and _is_shown(site.switch, as_of)]
    yield from _each(IssueCode.SITE_EPOCH_TAKEN, "sites have a leader that central did not appoint", taken)
    different = [(site, text) for site in pairs if (text := _differences(site))]
    yield from _each(IssueCode.SITE_DEFINITIONS, "sites have nodes with different definitions", different)


def _each(code: IssueCode, many: str, found: Sequence[_Finding]) -> Iterator[Issue]:
    """One issue per site, or one for all if there are many."""
    if len(found) > SEPARATE_MAX:
        names = few([site.record.name for site, _ in found])
        text = f"{number(len(found))} {many}: {names}."
        yield Issue(code, IssueSeverity.WARNING, text, "/sites", subjects=len(found))
        return
    for site, text in found:
        yield Issue(code, IssueSeverity.WARNING, text, f"{site_path(site.record.name)}#nodes")


def _missing(site: SiteState, as_of: datetime) -> str | None:
    """Why the pair has no standby that could continue."""
    name = site.record.name
    for node in site.nodes:
        if node.link is LinkState.OFFLINE:
            return f"{_role(node)} of {name}, {_silence(node, as_of)}."
        if node.pair is None:
            return f"Node {node.node} of {name} does not run as part of a pair. Set it up with fieldpost site pair."
    leader = site.leader
    heard_s = leader.pair.peer_age_s if leader and leader.pair else None
    if heard_s is None or heard_s > PEER_SILENT_S:
        silence = "" if heard_s is None else f" for {age(heard_s)}"
        return f"The nodes of {name} have had no connection{silence}: changes are not copied."
    return None


def _role(node: SiteNodeState) -> str:
    return f"Node {node.node}, the {node.role}"


def _silence(node: SiteNodeState, as_of: datetime) -> str:
    if node.health is None:
        return "has never reported"
    silence = age(as_of - node.health.received_at)
    return f"was stopped {silence} ago" if node.health.report.is_stopping else f"has not reported for {silence}"


def _lag(site: SiteState) -> str | None:
    pair = site.leader.pair if site.leader else None
    if pair is None or pair.lag_s <= LAG_MAX_S:
        return None
    return f"The standby of {site.record.name} lags by {age(pair.lag_s)} ({number(pair.lag_changes)} changes)."


def _is_shown(switch: EpochSwitch, as_of: datetime) -> bool:
    return switch.is_taken and as_of - switch.recorded_at < TAKEN_SHOWN


def _taken(site: SiteState, switch: EpochSwitch) -> str:
    match switch.cause:
        case SwitchCause.FORCED:
            why = f"a person forced it: {switch.reason or 'no reason given'}"
        case SwitchCause.HANDED_OVER:
            why = f"node {1 - switch.node} handed over to it, and central did not answer"
        case cause:
            why = _CAUSES[cause]
    return f"Node {switch.node} of {site.record.name} took the lead without central (epoch {switch.epoch}): {why}."


def _differences(site: SiteState) -> str | None:
    pair = site.leader.pair if site.leader else None
    if pair is None or not pair.differences:
        return None
    return f"The nodes of {site.record.name} differ: {few(pair.differences)}."
