"""`/site-health`: how the sites are, as they report, and how they were."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fieldpost.central.watch.sites import SiteState
from fieldpost.core.search.filters import parse_moment
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import MOMENT, Parameter, spec


class MirrorView(msgspec.Struct, frozen=True, kw_only=True):
    """How far central's mirror of the site's cached calls has come."""

    incarnation: str
    cursor: int
    is_rereading: bool
    reconciled_at: str | None
    replaced_at: str | None
    replaced_count: int
    refused_count: int
    last_refusal: str | None


class SiteHealthView(msgspec.Struct, frozen=True, kw_only=True):
    """What a site reported last; null where it never did."""

    name: str
    link: str
    """online, late or offline, by the age of the last report."""
    created_at: str
    revoked_at: str | None
    last_seen_at: str | None
    reported_at: str | None
    version: str | None = None
    backlog: Mapping[str, int] | None = None
    oldest_age_s: float | None = None
    parked: int | None = None
    rejected: int | None = None
    disk_free_bytes: int | None = None
    events: Mapping[str, int] | None = None
    is_forwarding: bool | None = None
    forward_error: str | None = None
    failing_for_s: float | None = None
    uptime_s: float | None = None
    clock_offset_s: float | None = None
    open_intents: int
    mirror: MirrorView | None


class AllHealthView(msgspec.Struct, frozen=True):
    sites: list[SiteHealthView]
    as_of: str


class OneHealthView(msgspec.Struct, frozen=True):
    site: SiteHealthView
    as_of: str


class HealthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What holds from this moment until the next point."""

    at: str
    link: str
    depth: int
    oldest_age_s: float
    parked: int
    rejected: int
    disk_free_bytes: int | None


class HealthHistoryView(msgspec.Struct, frozen=True, kw_only=True, rename={"begin": "from", "end": "to"}):
    site: str
    begin: str
    end: str
    points: list[HealthPoint]
    is_whole: bool


@spec(AllHealthView)
async def show_all(call: Call) -> ApiAnswer:
    """All sites: online, late or offline, with what each reported last, as of a moment ago."""
    call.query()
    fleet = await call.watch.sites.all()
    return ApiAnswer(AllHealthView([_view(state) for state in fleet.sites], to_text(fleet.as_of)))


@spec(OneHealthView)
async def show(call: Call) -> ApiAnswer:
    """One site as of now."""
    call.query()
    state, as_of = await call.watch.sites.one(call.path("name"))
    return ApiAnswer(OneHealthView(_view(state), to_text(as_of)))


@spec(
    HealthHistoryView,
    query=(
        Parameter("from", MOMENT, "the first moment, in UTC"),
        Parameter("to", MOMENT, "the last moment, in UTC"),
    ),
)
async def history(call: Call) -> ApiAnswer:
    """How a site was, `from` a time `to` another (the last day by default); a quiet site has few points."""
    query = call.query()
    begin, end = (parse_moment(query[name][0], name) if name in query else None for name in ("from", "to"))
    found = await call.watch.sites.history(call.path("name"), begin, end)
    points = [
        HealthPoint(
            at=to_text(at),
            link=figures.state,
            depth=figures.depth,
            oldest_age_s=figures.oldest_age_s,
            parked=figures.parked,
            rejected=figures.rejected,
            disk_free_bytes=figures.disk_free_bytes,
        )
        for at, figures in found.points
    ]
    return ApiAnswer(
        HealthHistoryView(
            site=found.site,
            begin=to_text(found.begin),
            end=to_text(found.end),
            points=points,
            is_whole=found.is_whole,
        )
    )


def _view(state: SiteState) -> SiteHealthView:
    record, health = state.record, state.health
    known: dict[str, Any] = {
        "name": record.name,
        "link": state.link.value,
        "created_at": to_text(record.created_at),
        "revoked_at": to_text(record.revoked_at) if record.revoked_at else None,
        "last_seen_at": to_text(record.last_seen_at) if record.last_seen_at else None,
        "reported_at": to_text(health.received_at) if health else None,
        "open_intents": state.open_intents,
        "mirror": _mirror(state.mirror) if state.mirror else None,
    }
    if health is None:
        return SiteHealthView(**known)
    report = health.report
    told: dict[str, Any] = {
        "version": report.version,
        "backlog": report.backlog,
        "oldest_age_s": report.oldest_age_s,
        "parked": report.parked,
        "rejected": report.rejected,
        "disk_free_bytes": report.disk_free_bytes,
        "events": report.events,
        "is_forwarding": report.is_forwarding,
        "forward_error": report.forward_error,
        "failing_for_s": report.failing_for_s,
        "uptime_s": report.uptime_s,
        "clock_offset_s": round(health.clock_offset_s, 3),
    }
    return SiteHealthView(**known, **told)


def _mirror(mirror: Mirror) -> MirrorView:
    return MirrorView(
        incarnation=mirror.incarnation,
        cursor=mirror.cursor,
        is_rereading=mirror.is_rereading,
        reconciled_at=to_text(mirror.reconciled_at) if mirror.reconciled_at else None,
        replaced_at=to_text(mirror.replaced_at) if mirror.replaced_at else None,
        replaced_count=mirror.replaced_count,
        refused_count=mirror.refused_count,
        last_refusal=mirror.last_refusal,
    )
