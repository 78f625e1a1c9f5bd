"""`/site-health`: the health of the sites, as they report it, now and in the past."""

from dataclasses import dataclass
from datetime import datetime

from fieldpost.central.watch.sites import Fleet, HealthHistory, SiteState
from fieldpost.core.search.filters import parse_moment
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.sites.health import HealthFigures
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import MOMENT, Parameter, spec
from fieldpost.link.http.view import View, ViewField, within


@dataclass(frozen=True, slots=True)
class OneSite:
    """One site at a time."""

    site: SiteState
    as_of: datetime


@dataclass(frozen=True, slots=True)
class HealthPoint:
    """Figures that hold from this time until the next point."""

    at: datetime
    figures: HealthFigures


def _clock_offset(state: SiteState) -> float | None:
    return round(state.health.clock_offset_s, 3) if state.health else None


def _points(history: HealthHistory) -> list[HealthPoint]:
    return [HealthPoint(at, figures) for at, figures in history.points]


MIRROR = View(
    "MirrorView",
    Mirror,
    "incarnation cursor is_rereading reconciled_at replaced_at replaced_count refused_count last_refusal",
    description="The state of central's mirror of the site's cached calls.",
)
SITE_HEALTH = View(
    "SiteHealthView",
    SiteState,
    "name=record.name link condition",
    within("record", "created_at revoked_at last_seen_at"),
    "reported_at=health.received_at",
    within("health.report", "version backlog oldest_age_s parked rejected disk_free_bytes events"),
    within("health.report", "is_forwarding forward_error failing_for_s uptime_s"),
    ViewField("clock_offset_s", _clock_offset),
    "open_intents",
    ViewField("mirror", view=MIRROR),
    description="The last report of a site; null before the first one. `link` is online, late or offline, by the age "
    "of the last report; `condition` also knows failing, stopped, new and revoked.",
)
ALL_HEALTH = View("AllHealthView", Fleet, ViewField("sites", view=SITE_HEALTH), "as_of")
ONE_HEALTH = View("OneHealthView", OneSite, ViewField("site", view=SITE_HEALTH), "as_of")
POINT = View(
    "HealthPoint",
    HealthPoint,
    "at link=figures.state",
    within("figures", "depth oldest_age_s parked rejected disk_free_bytes"),
    description="Figures that hold from this time until the next point.",
)
HISTORY = View(
    "HealthHistoryView",
    HealthHistory,
    "site from=begin to=end",
    ViewField("points", _points, POINT),
    "is_whole",
)


@spec(ALL_HEALTH)
async def show_all(call: Call) -> Fleet:
    """Show the link state and the last report of every site, cached for a few seconds."""
    return await call.watch.sites.all()


@spec(ONE_HEALTH)
async def show(call: Call) -> OneSite:
    """Show the link state and the last report of one site."""
    return OneSite(*await call.watch.sites.one(call.path("name")))


@spec(
    HISTORY,
    query=(
        Parameter("from", MOMENT, "Start of the range (UTC)"),
        Parameter("to", MOMENT, "End of the range (UTC)"),
    ),
)
async def history(call: Call) -> HealthHistory:
    """Show the health history of a site, by default of the last day. A site that rarely changes has few points."""
    begin, end = (_moment(call, name) for name in ("from", "to"))
    return await call.watch.sites.history(call.path("name"), begin, end)


def _moment(call: Call, name: str) -> datetime | None:
    text = call.parameter(name)
    return None if text is None else parse_moment(text, name)
