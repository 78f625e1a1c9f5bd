"""The health page: how much is where on the way of a notification, trouble first."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlencode

from starlette.responses import Response

from fieldpost.central.watch.kpis import History
from fieldpost.central.watch.nodes import Centre, Node, NodeState
from fieldpost.central.watch.sites import SiteState, worst_first
from fieldpost.core.bulk import BulkAction
from fieldpost.core.kpi import Snapshot
from fieldpost.core.sites.health import SiteCondition
from fieldpost.core.sites.message import Category
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.issues import HealthInputs, all_is_well, lost_nodes, troubles
from fieldpost.front.console.kit.chart import AGE, COUNT, SPAN_DEFAULT, SPANS, Chart, ChartSpan, Series, draw
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute

PATH = "/"
TROUBLES_MAX = 7
"""So many lines are open; the others can be opened."""
SITES_MAX = 8
NODES_MAX = 8
ACTS_LOOKED_AT = 20


async def page(request: PageRequest) -> Response:
    watch = request.backend.watch
    span = SPANS.get(request.http.query_params.get("span", ""), SPANS[SPAN_DEFAULT])
    snapshot, fleet, centre = await watch.kpis.now(), await watch.sites.all(), await watch.nodes.all()
    ways, ready = await watch.channels.all(), await watch.health.readiness()
    seen = HealthInputs(
        as_of=snapshot.as_of,
        figures=snapshot.total,
        by=watch.kpis.by,
        sites=worst_first(fleet.sites),
        centre=centre,
        channels=ways.channels,
        checks=ready.checks,
        keys=await watch.health.troubles(),
    )
    return request.page(
        "health.html",
        as_of=snapshot.as_of,
        total=snapshot.total,
        by=watch.kpis.by,
        seen=seen,
        troubles=troubles(seen),
        troubles_max=TROUBLES_MAX,
        all_is_well=all_is_well(seen),
        oldest_path=_oldest_path(snapshot),
        at_sites=_AtSites(seen.sites),
        sites_max=SITES_MAX,
        nodes=_nodes(centre),
        acts=_running(await watch.bulk_actions.newest(ACTS_LOOKED_AT)),
        span=span,
        spans=SPANS.values(),
        charts=_charts(await watch.kpis.trends(span.length, span.step), span, snapshot),
    )


class _AtSites:
    """What the sites report of what waits with them: theirs, and none of central's figures."""

    def __init__(self, sites: Sequence[SiteState]) -> None:
        known = [site for site in sites if site.standing is not SiteCondition.REVOKED]
        reports = [site.health.report for site in known if site.health is not None]
        self.notifications = sum(report.backlog.get(Category.NOTIFICATION, 0) for report in reports)
        self.calls = sum(report.depth for report in reports) - self.notifications
        self.rejected = sum(report.rejected for report in reports)
        self.oldest = timedelta(seconds=max((report.oldest_age_s for report in reports), default=0.0))
        self.unheard = sum(site.standing in (SiteCondition.OFFLINE, SiteCondition.LATE) for site in known)
        self.all = sum(site.standing is not SiteCondition.NEW for site in known)
        self.connected = self.all - self.unheard


def _oldest_path(snapshot: Snapshot) -> str:
    """The list of what is as old as the oldest, which would else stand at the end of the last page."""
    fields: dict[str, str | list[str]] = {"status": ["pending", "retrying"]}
    if age_s := snapshot.total["oldest_pending_age_s"]:
        until = snapshot.as_of - timedelta(seconds=age_s - 1)
        fields["to"] = to_text(until.replace(microsecond=0))[:19] + "Z"
    return f"/notifications?{urlencode(fields, doseq=True)}"


def _nodes(centre: Centre) -> list[Node]:
    """Those that were lost, those that run, and as many as fit of those that have stopped."""
    lost = lost_nodes(centre)
    running = [node for node in centre.nodes if node.state is NodeState.RUNNING]
    others = [node for node in centre.nodes if node not in lost and node not in running]
    return (lost + running + others)[: max(NODES_MAX, len(lost) + len(running))]


def _running(acts: Sequence[BulkAction]) -> list[BulkAction]:
    return [act for act in acts if not act.status.has_ended]


def _charts(found: Mapping[str, History], span: ChartSpan, snapshot: Snapshot) -> list[Chart]:
    """What was kept, and as its last point what the tiles say, so that the two never differ."""
    end = max(found["queue_depth"].end, snapshot.as_of)

    def series(kpi: str, name: str, tone: str = "") -> Series:
        points = found[kpi].points
        return Series(name, [*points, (end, snapshot.total[kpi])] if points else points, tone)

    return [
        draw(
            "depth", "Queue depth", [series("queue_depth", "queue depth"), series("stuck", "stuck", "wait")], span, end
        ),
        draw(
            "delivered", "Delivered per interval", [series("delivered_last_interval", "delivered", "good")], span, end
        ),
        draw("oldest", "Oldest pending", [series("oldest_pending_age_s", "oldest pending")], span, end, unit=AGE),
        draw("parked", "Parked", [series("parked", "parked", "bad")], span, end, unit=COUNT),
    ]


MENU = MenuLine("Health", PATH, "Now", "h")
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)
