"""The health page: the issues, then the figures along the path of a notification, then their history."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlencode

from starlette.responses import Response

from fieldpost.central.watch.channels import ChannelState
from fieldpost.central.watch.issue import IssueCode
from fieldpost.central.watch.issues import HealthInputs, lost_nodes
from fieldpost.central.watch.kpis import History
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.sites import SiteState
from fieldpost.core.actor import Role
from fieldpost.core.kpi import WEBHOOKS, Snapshot
from fieldpost.core.quantities import number
from fieldpost.core.sites.health import SiteCondition
from fieldpost.core.sites.message import Category
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.events.subscriptions import PATH as SUBSCRIPTIONS
from fieldpost.front.console.kit.chart import AGE, COUNT, SPAN_DEFAULT, SPANS, Chart, ChartSpan, Series, draw, span_for
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute, redirect

PATH = "/"
ISSUES_MAX = 7
"""How many issues are shown; the others are folded away."""
SITES_MAX = 8
NODES_MAX = 8
ACTIONS_READ = 20
"""How many of the newest bulk actions are searched for running ones."""


async def page(request: PageRequest) -> Response:
    if not request.may(Role.VIEWER):
        return redirect(SUBSCRIPTIONS)  # the first page that a subscriber may use
    watch = request.watch
    overview = await watch.overview.now()
    snapshot, inputs = overview.snapshot, overview.inputs
    span, trends = await _trends(request, snapshot)
    return request.page(
        "health.html",
        as_of=snapshot.as_of,
        total=snapshot.total,
        by=inputs.by,
        inputs=inputs,
        issues=overview.issues,
        issues_max=ISSUES_MAX,
        summary=summary(inputs),
        has_webhooks=_has_webhooks(snapshot),
        oldest_path=_oldest_path(snapshot),
        at_sites=_AtSites(inputs.sites),
        sites_max=SITES_MAX,
        nodes=_nodes(inputs.centre),
        actions=[one for one in await watch.bulk_actions.newest(ACTIONS_READ) if not one.status.has_ended],
        span=span,
        spans=SPANS.values(),
        charts=_charts(trends, span, snapshot),
    )


async def _trends(request: PageRequest, snapshot: Snapshot) -> tuple[ChartSpan, Mapping[str, History]]:
    """The requested span, or the default one that has data, and its history."""
    chosen = SPANS.get(request.http.query_params.get("span", ""))
    span = chosen or SPANS[SPAN_DEFAULT]
    found = await request.watch.kpis.trends(span.length, span.step)
    fitting = chosen or span_for([at for at, _ in found["queue_depth"].points], snapshot.as_of)
    if fitting != span:
        found = await request.watch.kpis.trends(fitting.length, fitting.step)
    return fitting, found


def summary(inputs: HealthInputs) -> str:
    """The headline of an installation without issues: what works, or what to set up first."""
    if not inputs.sites and not inputs.channels:
        return "Nothing is set up yet. Add a channel, a list and a site."
    online = sum(site.condition is SiteCondition.ONLINE for site in inputs.sites)
    new = sum(site.condition is SiteCondition.NEW and site.record.last_seen_at is None for site in inputs.sites)
    depth = inputs.figures["queue_depth"]
    parts = [
        "no parked, stuck or overdue notifications",
        f"{_count(online, 'site')} online" if online else "no site has reported yet",
        *([f"{new} not enrolled yet"] if new and online else []),
        *_channels(inputs.channels),
        f"{number(depth)} in the queue" if depth else "the queue is empty",
    ]
    return f"All is well: {', '.join(parts)}."


def _channels(channels: Sequence[ChannelState]) -> list[str]:
    if not channels:
        return ["no channel is set up yet"]
    tried = sum(state.is_tried for state in channels)
    untried = len(channels) - tried
    return [
        *([f"{_count(tried, 'channel')} healthy"] if tried else []),
        *([f"{_count(untried, 'channel')} not tried yet"] if untried else []),
    ]


def _count(count: int, noun: str) -> str:
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


class _AtSites:
    """Figures that the sites report about themselves, separate from those of central."""

    def __init__(self, sites: Sequence[SiteState]) -> None:
        known = [site for site in sites if site.condition is not SiteCondition.REVOKED]
        reports = [site.health.report for site in known if site.health is not None]
        self.notifications = sum(report.backlog.get(Category.NOTIFICATION, 0) for report in reports)
        self.calls = sum(report.depth for report in reports) - self.notifications
        self.rejected = sum(report.rejected for report in reports)
        self.oldest = timedelta(seconds=max((report.oldest_age_s for report in reports), default=0.0))
        self.unheard = sum(
            site.condition in (SiteCondition.OFFLINE, SiteCondition.LATE, SiteCondition.STOPPED) for site in known
        )
        self.all = sum(site.condition is not SiteCondition.NEW for site in known)
        self.connected = self.all - self.unheard


def _oldest_path(snapshot: Snapshot) -> str:
    """The list cut off after the oldest row, which would otherwise be at the end of the last page."""
    fields: dict[str, str | list[str]] = {"status": ["pending", "retrying"]}
    if _has_webhooks(snapshot):
        fields["kind"] = "list"
    if age_s := snapshot.total["oldest_pending_age_s"]:
        until = snapshot.as_of - timedelta(seconds=age_s - 1)
        fields["to"] = to_text(until.replace(microsecond=0))[:19] + "Z"
    return f"/notifications?{urlencode(fields, doseq=True)}"


def _has_webhooks(snapshot: Snapshot) -> bool:
    return any(value for name, value in snapshot.total.items() if name.startswith(WEBHOOKS))


def _nodes(centre: Centre) -> list[Node]:
    """All lost and running nodes, then stopped ones up to the limit."""
    lost = lost_nodes(centre)
    running = [node for node in centre.nodes if node.state is NodeState.RUNNING]
    others = [node for node in centre.nodes if node not in lost and node not in running]
    return (lost + running + others)[: max(NODES_MAX, len(lost) + len(running))]


def _charts(found: Mapping[str, History], span: ChartSpan, snapshot: Snapshot) -> list[Chart]:
    """The history, with the current figures as its last point, so that charts and tiles agree."""
    end = max(found["queue_depth"].end, snapshot.as_of)

    def series(kpi: str, name: str, tone: str = "") -> Series:
        points = found[kpi].points
        return Series(name, [*points, (end, snapshot.total[kpi])] if points else points, tone)

    def with_webhooks(kpi: str, name: str, tone: str = "") -> list[Series]:
        of_lists = series(kpi, name, tone)
        return [of_lists, series(WEBHOOKS + kpi, "webhooks", "calm")] if _has_webhooks(snapshot) else [of_lists]

    depth = [*with_webhooks("queue_depth", "queue depth"), series("stuck", "stuck", "wait")]
    delivered = with_webhooks("delivered_last_interval", "delivered", "good")
    return [
        draw("depth", "Queue depth", depth, span, end),
        draw("delivered", "Delivered per interval", delivered, span, end),
        draw("oldest", "Oldest pending", with_webhooks("oldest_pending_age_s", "oldest pending"), span, end, unit=AGE),
        draw("parked", "Parked", with_webhooks("parked", "parked", "bad"), span, end, unit=COUNT),
    ]


MENU = MenuLine("Health", PATH, "Now", "h", badge=tuple(IssueCode), badge_label="issues")
ROUTES = (PageRoute("GET", PATH, page, Access.USER),)
