"""The page of a site: state, history, backlog, requests and credentials."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote, urlencode

from starlette.responses import Response

from fieldpost.central.operate.sites import OVERLAP_DEFAULT, AddedSite, Invitation
from fieldpost.central.watch.issue import site_path
from fieldpost.central.watch.sites import HealthHistory, SiteState
from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import NOTHING
from fieldpost.core.quantities import plural
from fieldpost.core.sites.health import KEEP_EVERY, HealthFigures, LinkState, SiteCondition
from fieldpost.core.sites.node import NODES
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.chart import SPAN_DEFAULT, SPANS, Chart, ChartSpan, Series, draw
from fieldpost.front.console.kit.request import EMPTY_FORM, PageRequest, PageRoute, SubmittedForm, redirect
from fieldpost.front.console.sites.intents import ENDED, OPEN
from fieldpost.front.console.sites.sites import METHODS, VALID_HOURS, central_of, credentials_page, valid_of

OPEN_MAX, ENDED_MAX = 20, 8
HOLDS = KEEP_EVERY + timedelta(minutes=10)
"""How long a sample holds in the charts; unchanged figures are stored once an hour."""
OVERLAPS = (("24", "for 1 day"), ("1", "for 1 hour"), ("168", "for 7 days"), ("0", "no, end them immediately"))
NOTICES = {
    "revoked": "Site revoked: central rejects everything it sends. Create a new code to readmit it.",
    "cancelled": "Request cancelled.",
    "node_removed": "Node removed: central rejects everything it sends.",
}

HealthPoints = Sequence[tuple[datetime, HealthFigures]]


async def page(request: PageRequest) -> Response:
    name, watch = request.path("name"), request.watch
    span = SPANS.get(request.http.query_params.get("span", ""), SPANS[SPAN_DEFAULT])
    state, as_of = await watch.sites.one(name)
    # The value at the start of the chart was sampled before it.
    history = await watch.sites.history(name, as_of - span.length - KEEP_EVERY, as_of)
    snapshot = await watch.kpis.now()
    return request.page(
        "site.html",
        as_of=as_of,
        site=state,
        report=state.health.report if state.health else None,
        since=since(state, history),
        access=await watch.sites.access(name),
        switches=await watch.sites.switches(name) if state.is_pair else [],
        figures=snapshot.of_sites.get(name, NOTHING),
        by=watch.kpis.by,
        span=span,
        spans=SPANS.values(),
        charts=_charts(history.points, span, as_of),
        is_whole=history.is_whole,
        open_intents=(await watch.cached_calls.intents(site=name, states=OPEN, limit=OPEN_MAX)).intents,
        ended_intents=(await watch.cached_calls.intents(site=name, states=ENDED, limit=ENDED_MAX)).intents,
        own_path=site_path(name),
        notifications_url=_NotificationsUrl(name),
        notice=request.notice(NOTICES),
    )


async def rotate(request: PageRequest) -> Response:
    form, name, operate = await request.form(), request.path("name"), request.operate.sites
    try:
        central, overlap, node = central_of(request, form), _overlap_of(form), _node_of(form)
        if form.get("by") == "token":
            given: AddedSite | Invitation = await operate.rotate_token(request.actor, name, overlap, node=node)
        else:
            given = await operate.rotate(request.actor, name, overlap, node=node)
    except InvalidInput as error:
        return await confirm_rotate(request, SubmittedForm.rejected(form, error))
    return credentials_page(request, given, central, "ITS-FOLDER")


async def confirm_add_node(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    access = await request.watch.sites.access(request.path("name"))
    name = access.record.name
    why_not = "The site has two nodes already." if len(access.nodes) > 1 else None
    return request.confirm(
        form=form,
        template="site_add_node.html",
        title=f"Add a node to {name}",
        text="The second node runs on its own machine and keeps a copy of the site's buffer. You get a command to run"
        " there; it is shown only once.",
        action=f"{site_path(name)}/add-node",
        button="Add node",
        is_danger=False,
        back=site_path(name),
        why_not="The site is revoked. Create a new code first." if access.record.revoked_at else why_not,
        valid_hours=VALID_HOURS,
        methods=METHODS,
        central=request.own_url or "",
    )


async def add_node(request: PageRequest) -> Response:
    form, name, operate = await request.form(), request.path("name"), request.operate.sites
    try:
        central, valid = central_of(request, form), valid_of(form)
    except InvalidInput as error:
        return await confirm_add_node(request, SubmittedForm.rejected(form, error))
    if form.get("by") == "token":
        return credentials_page(request, await operate.add_node_token(request.actor, name), central, f"./{name}")
    return credentials_page(request, await operate.add_node(request.actor, name, valid), central, f"./{name}")


async def confirm_remove_node(request: PageRequest) -> Response:
    access = await request.watch.sites.access(request.path("name"))
    name, node = access.record.name, _required_node(request.http.query_params)
    return request.confirm(
        title=f"Remove node {node} of {name}?",
        text="Its tokens and codes stop working, and central closes its connections. The other node continues."
        " Rows that only this node has stay on its disk.",
        action=f"{site_path(name)}/remove-node",
        button="Remove",
        back=site_path(name),
        hidden={"node": node},
        why_not=None if len(access.nodes) > 1 else "The site has one node. Revoke the site instead.",
    )


async def remove_node(request: PageRequest) -> Response:
    node = _required_node(await request.form())
    removed = await request.operate.sites.remove_node(request.actor, request.path("name"), node)
    return redirect(site_path(removed.name), "node_removed")


async def confirm_revoke(request: PageRequest) -> Response:
    state, _ = await request.watch.sites.one(request.path("name"))
    name = state.record.name
    waiting = f" The site keeps its {plural(state.depth, 'waiting message')}." if state.depth else ""
    return request.confirm(
        title=f"Revoke the site {name}?",
        text=f"Central rejects everything from this site: its tokens and codes stop working.{waiting}"
        " Notifications already received can still be managed. A new code readmits the site.",
        action=f"{site_path(name)}/revoke",
        button="Revoke",
        back=site_path(name),
        why_not="The site is already revoked." if state.record.revoked_at else None,
    )


async def revoke(request: PageRequest) -> Response:
    await request.form()
    revoked = await request.operate.sites.revoke(request.actor, request.path("name"))
    return redirect(site_path(revoked.name), "revoked")


async def confirm_rotate(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    access = await request.watch.sites.access(request.path("name"))
    name, has_tokens = access.record.name, any(token.is_valid(access.as_of) for token in access.tokens)
    return request.confirm(
        form=form,
        template="site_rotate.html",
        title=f"New code or token for {name}",
        text="You get a command to run at the site; it is shown only once."
        + (" This readmits the site." if access.record.revoked_at else ""),
        action=f"{site_path(name)}/rotate",
        button="Create",
        is_danger=False,
        back=site_path(name),
        has_tokens=has_tokens,
        nodes=[(str(node), f"node {node}") for node in access.nodes],
        overlaps=OVERLAPS,
        methods=METHODS,
        central=request.own_url or "",
    )


def since(state: SiteState, history: HealthHistory) -> datetime | None:
    """The start of the current state; None if unknown or before this history."""
    match state.condition:
        case SiteCondition.REVOKED:
            return state.record.revoked_at
        case SiteCondition.NEW:
            return state.record.created_at
        case SiteCondition.OFFLINE | SiteCondition.LATE | SiteCondition.STOPPED:
            return state.heard_at
        case SiteCondition.FAILING:
            failing_s = state.health.report.failing_for_s if state.health else None
            return state.health.received_at - timedelta(seconds=failing_s) if state.health and failing_s else None
        case SiteCondition.ONLINE:
            return _online_since(history)


def _online_since(history: HealthHistory) -> datetime | None:
    found = None
    for at, figures in reversed(history.points):
        if figures.state != LinkState.ONLINE:
            return found
        found = at
    # A sample is stored at least once an hour: a history that begins later is that of a new site.
    return found if found and history.is_whole and found > history.begin + HOLDS else None


def offline_bands(points: HealthPoints, end: datetime) -> list[tuple[datetime, datetime]]:
    """The periods in which the site was offline."""
    bands: list[tuple[datetime, datetime]] = []
    begun: datetime | None = None
    for at, figures in points:
        is_offline = figures.state == LinkState.OFFLINE
        if is_offline and begun is None:
            begun = at
        elif not is_offline and begun is not None:
            bands.append((begun, at))
            begun = None
    return bands if begun is None else [*bands, (begun, end)]


def _charts(points: HealthPoints, span: ChartSpan, end: datetime) -> list[Chart]:
    bands = [(begin, until) for begin, until in offline_bands(points, end) if until > end - span.length]

    def series(name: str, field: str, tone: str = "") -> Series:
        return Series(name, [(at, float(getattr(figures, field))) for at, figures in points], tone)

    def drawn(key: str, title: str, *lines: Series) -> Chart:
        return draw(key, title, lines, span, end, is_stepped=True, gap=HOLDS, bands=bands)

    lag = [(at, figures.lag_s) for at, figures in points if figures.lag_s is not None]
    return [
        drawn("backlog", "Waiting at the site", series("waiting", "depth")),
        drawn(
            "set-aside",
            "Parked and rejected there",
            series("parked calls", "parked", "bad"),
            series("rejected", "rejected", "wait"),
        ),
        *([drawn("lag", "Lag of the standby, in seconds", Series("lag", lag, "wait"))] if lag else []),
    ]


def _overlap_of(form: Mapping[str, str]) -> timedelta:
    hours = form.get("overlap_h") or f"{OVERLAP_DEFAULT.total_seconds() / 3600:.0f}"
    if hours not in dict(OVERLAPS):
        raise InvalidInput("site.overlap", f"overlap_h must be one of {', '.join(dict(OVERLAPS))}", field="overlap_h")
    return timedelta(hours=int(hours))


def _node_of(form: Mapping[str, str]) -> int | None:
    text = form.get("node", "")
    if text not in ("", *map(str, NODES)):
        raise InvalidInput("site.node", "node must be 0 or 1", field="node")
    return int(text) if text else None


def _required_node(form: Mapping[str, str]) -> int:
    node = _node_of(form)
    if node is None:
        raise InvalidInput("site.node", "node must be 0 or 1", field="node")
    return node


class _NotificationsUrl:
    """URLs of the notifications page with this site's notifications only."""

    def __init__(self, site: str) -> None:
        self._site = site

    def __call__(self, *statuses: str, **more: str) -> str:
        fields: dict[str, str | Sequence[str]] = {"site": self._site, "status": statuses, **more}
        return f"/notifications?{urlencode(fields, doseq=True, quote_via=quote)}"


_ONE = "/sites/{name:path}"
ROUTES = (
    PageRoute("GET", f"{_ONE}/rotate", confirm_rotate, Access.ADMIN),
    PageRoute("POST", f"{_ONE}/rotate", rotate, Access.ADMIN),
    PageRoute("GET", f"{_ONE}/add-node", confirm_add_node, Access.ADMIN),
    PageRoute("POST", f"{_ONE}/add-node", add_node, Access.ADMIN),
    PageRoute("GET", f"{_ONE}/remove-node", confirm_remove_node, Access.ADMIN),
    PageRoute("POST", f"{_ONE}/remove-node", remove_node, Access.ADMIN),
    PageRoute("GET", f"{_ONE}/revoke", confirm_revoke, Access.ADMIN),
    PageRoute("POST", f"{_ONE}/revoke", revoke, Access.ADMIN),
    PageRoute("GET", _ONE, page, Access.VIEWER),
)
