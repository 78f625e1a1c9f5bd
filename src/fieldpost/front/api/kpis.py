"""`/kpis`: current KPIs, in total and per site, and their history."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fieldpost.central.watch.kpis import History
from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import KPIS, Thresholds
from fieldpost.core.times import from_text
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import MOMENT, NAME, Parameter, one_of, spec
from fieldpost.link.http.view import View, ViewField


@dataclass(frozen=True, slots=True)
class TotalKpis:
    """The KPIs of all sites together."""

    kpis: Mapping[str, float]
    thresholds: Thresholds
    as_of: datetime


@dataclass(frozen=True, slots=True)
class SiteKpis:
    """The KPIs of one site."""

    site: str
    kpis: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AllSiteKpis:
    """The KPIs of every site."""

    sites: list[SiteKpis]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class KpiPoint:
    """The value of a KPI at one time."""

    at: datetime
    value: float


def _points(history: History) -> list[KpiPoint]:
    return [KpiPoint(at, value) for at, value in history.points]


THRESHOLDS = View(
    "ThresholdsView",
    Thresholds,
    "stuck_after_s=stuck_after overdue_after_s=overdue_after delivered_window_s=delivered_window",
    description="The thresholds of the KPIs, in seconds.",
)
TOTAL = View("KpisView", TotalKpis, "kpis", ViewField("thresholds", view=THRESHOLDS), "as_of")
SITE = View("SiteKpisView", SiteKpis, "site kpis")
SITES = View("SitesKpisView", AllSiteKpis, ViewField("sites", view=SITE), "as_of")
POINT = View("Point", KpiPoint, "at value")
HISTORY = View("HistoryView", History, "kpi site from=begin to=end step_s=step", ViewField("points", _points, POINT))


@spec(TOTAL)
async def show(call: Call) -> TotalKpis:
    """Show the KPIs of all sites together, cached for a few seconds."""
    found = await call.watch.kpis.now()
    return TotalKpis(found.total, call.watch.kpis.by, found.as_of)


@spec(SITES)
async def by_site(call: Call) -> AllSiteKpis:
    """Show the KPIs of each site, cached for a few seconds."""
    found = await call.watch.kpis.now()
    return AllSiteKpis([SiteKpis(site, figures) for site, figures in sorted(found.of_sites.items())], found.as_of)


@spec(
    HISTORY,
    query=(
        Parameter("kpi", one_of([kpi.name for kpi in KPIS]), "The KPI", is_required=True),
        Parameter("site", NAME, "One site instead of all"),
        Parameter("from", MOMENT, "Start of the range, with UTC offset"),
        Parameter("to", MOMENT, "End of the range, with UTC offset"),
    ),
)
async def history(call: Call) -> History:
    """Show the history of one `kpi`, of all sites or one `site`, by default of the last day.

    Each point is the maximum of its step: a minute, or longer for a long range.
    """
    begin, end = _moment(call, "from"), _moment(call, "to")
    return await call.watch.kpis.history(call.parameter("kpi", ""), call.parameter("site"), begin, end)


def _moment(call: Call, name: str) -> datetime | None:
    text = call.parameter(name)
    if text is None:
        return None
    # A query decodes a plus to a space, so the offset of +01:00 may arrive as one.
    moment = from_text(re.sub(r" (?=\d\d:\d\d$)", "+", text))
    if moment is None:
        raise InvalidInput(
            "time.invalid",
            f"{name} must be a time with UTC offset, such as 2026-11-15T08:00:00Z",
            field=name,
        )
    return moment
