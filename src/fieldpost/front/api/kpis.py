"""`/kpis`: the figures of now, of all sites or each, and how they were."""

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import KPIS
from fieldpost.core.times import from_text, to_text
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import MOMENT, NAME, Parameter, one_of, spec


class ThresholdsView(msgspec.Struct, frozen=True):
    """What the figures are measured by."""

    stuck_after_s: float
    overdue_after_s: float
    delivered_window_s: float


class KpisView(msgspec.Struct, frozen=True):
    kpis: Mapping[str, float]
    thresholds: ThresholdsView
    as_of: str


class SiteKpisView(msgspec.Struct, frozen=True):
    site: str
    kpis: Mapping[str, float]


class SitesKpisView(msgspec.Struct, frozen=True):
    sites: list[SiteKpisView]
    as_of: str


class Point(msgspec.Struct, frozen=True):
    at: str
    value: float


class HistoryView(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    kpi: str
    site: str | None
    begin: str
    end: str
    step_s: float
    points: list[Point]


@spec(KpisView)
async def show(call: Call) -> ApiAnswer:
    """The KPIs of all sites together, as of a moment ago."""
    call.query()
    found = await call.watch.kpis.now()
    by = call.watch.kpis.by
    thresholds = ThresholdsView(
        by.stuck_after.total_seconds(), by.overdue_after.total_seconds(), by.delivered_window.total_seconds()
    )
    return ApiAnswer(KpisView(found.total, thresholds, to_text(found.as_of)))


@spec(SitesKpisView)
async def by_site(call: Call) -> ApiAnswer:
    """The KPIs of each site, as of a moment ago."""
    call.query()
    found = await call.watch.kpis.now()
    sites = [SiteKpisView(site, figures) for site, figures in sorted(found.of_sites.items())]
    return ApiAnswer(SitesKpisView(sites, to_text(found.as_of)))


@spec(
    HistoryView,
    query=(
        Parameter("kpi", one_of([kpi.name for kpi in KPIS]), "which KPI", is_required=True),
        Parameter("site", NAME, "of one site instead of all"),
        Parameter("from", MOMENT, "the first moment, with its zone"),
        Parameter("to", MOMENT, "the last moment, with its zone"),
    ),
)
async def history(call: Call) -> ApiAnswer:
    """How one `kpi` was, of all sites or of one `site`, `from` a time `to` another (the last day by default).

    A point is the largest value of its step; a step is a minute, or more where there would be too many.
    """
    query = call.query()
    if "kpi" not in query:
        raise InvalidInput("query.missing", "kpi must be given", field="kpi")
    found = await call.watch.kpis.history(
        query["kpi"][0],
        query["site"][0] if "site" in query else None,
        _moment(query, "from"),
        _moment(query, "to"),
    )
    points = [Point(to_text(at), value) for at, value in found.points]
    return ApiAnswer(
        HistoryView(found.kpi, found.site, to_text(found.begin), to_text(found.end), found.step.total_seconds(), points)
    )


def _moment(query: dict[str, list[str]], name: str) -> datetime | None:
    if name not in query:
        return None
    # A plus in a query stands for a space, so an offset such as +01:00 may arrive with one.
    moment = from_text(re.sub(r" (?=\d\d:\d\d$)", "+", query[name][0]))
    if moment is None:
        raise InvalidInput(
            "time.invalid",
            f"{name} must be a time with its zone, such as 2026-11-15T08:00:00Z",
            field=name,
        )
    return moment
