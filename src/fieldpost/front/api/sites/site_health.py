"""`/site-health`: the health of the sites, as they report it, now and in the past."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fieldpost.central.watch.sites import Fleet, HealthHistory, SiteFilter, SiteNodeState, SiteState
from fieldpost.core.pair.switch import EpochSwitch
from fieldpost.core.search.filters import SITE_FILTERS, parse_moment
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.sites.health import HealthFigures
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import MOMENT, Parameter, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField, within


@dataclass(frozen=True, slots=True)
class OneSite:
    """One site at a time."""

    site: SiteState
    switches: Sequence[EpochSwitch]
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
NODE_HEALTH = View(
    "NodeHealthView",
    SiteNodeState,
    "node role link added_at reported_at=health.received_at",
    within("health.report", "version backlog oldest_age_s parked rejected disk_free_bytes uptime_s is_stopping"),
    within("pair", "grounds peer_age_s lag_changes lag_s differences"),
    description="The last report of a node of a pair. `lag_changes` and `lag_s` are the changes of this node that the "
    "other one lacks.",
)
SWITCH = View(
    "SwitchView",
    EpochSwitch,
    "epoch node cause reason taken_at recorded_at",
    description="The begin of an epoch. `cause` is granted by central, or, taken without it, silence, cut_off, "
    "handed_over, forced or, before the node has reported why, taken. `taken_at` is by the site's clock.",
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
    "epoch",
    ViewField("nodes", view=NODE_HEALTH),
    description="The last report of a site; null before the first one. `link` is online, late or offline, by the age "
    "of the last report; `condition` also knows failing, stopped, new and revoked. A pair has two `nodes`; its report "
    "is its leader's, and it is online while either node is.",
)
ALL_HEALTH = View("AllHealthView", Fleet, ViewField("sites", view=SITE_HEALTH), "as_of")
ONE_HEALTH = View(
    "OneHealthView", OneSite, ViewField("site", view=SITE_HEALTH), ViewField("switches", view=SWITCH), "as_of"
)
POINT = View(
    "HealthPoint",
    HealthPoint,
    "at link=figures.state",
    within("figures", "depth oldest_age_s parked rejected disk_free_bytes lag_changes lag_s"),
    description="Figures that hold from this time until the next point.",
)
HISTORY = View(
    "HealthHistoryView",
    HealthHistory,
    "site from=begin to=end",
    ViewField("points", _points, POINT),
    "is_whole",
)


@spec(ALL_HEALTH, query=filter_parameters(SITE_FILTERS))
async def show_all(call: Call) -> Fleet:
    """Show the link state and the last report of every site, cached for a few seconds."""
    wanted = SiteFilter.parse(call.filters(SITE_FILTERS))
    fleet = await call.watch.sites.all()
    return replace(fleet, sites=[site for site in fleet.sites if wanted.matches(site)])


@spec(ONE_HEALTH)
async def show(call: Call) -> OneSite:
    """Show the link state and the last report of one site, and the newest switches of a pair between its nodes."""
    name = call.path("name")
    site, as_of = await call.watch.sites.one(name)
    return OneSite(site, await call.watch.sites.switches(name) if site.is_pair else [], as_of)


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
