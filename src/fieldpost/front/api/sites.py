"""`/sites`: add, look, rotate tokens, revoke."""

from datetime import timedelta
from typing import Any

import msgspec

from fieldpost.central.operate.sites import OVERLAP_DEFAULT, VALID_DEFAULT, SiteRecord
from fieldpost.core.errors import InvalidInput
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import spec


class NewSite(Body, frozen=True, kw_only=True):
    name: str
    with_code: bool = False
    """A code by which the site enrols itself, instead of a token."""
    valid_s: float = VALID_DEFAULT.total_seconds()


class Rotation(Body, frozen=True, kw_only=True):
    overlap_s: float = OVERLAP_DEFAULT.total_seconds()
    with_code: bool = False
    valid_s: float | None = None


class AddedSiteView(msgspec.Struct, frozen=True):
    name: str
    token: str
    """Shown this once."""


class InvitedSite(msgspec.Struct, frozen=True):
    name: str
    code: str
    """Shown this once."""
    expires_at: str


class SiteView(msgspec.Struct, frozen=True):
    name: str
    created_at: str
    last_seen_at: str | None
    revoked_at: str | None


class SitesView(msgspec.Struct, frozen=True):
    sites: list[SiteView]


class SiteTokenView(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str
    is_valid: bool
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class EnrolmentView(msgspec.Struct, frozen=True):
    created_by: str
    created_at: str
    expires_at: str


class SiteDetail(SiteView, frozen=True, kw_only=True):
    tokens: list[SiteTokenView]
    enrolment: EnrolmentView | None
    """The code that the site may still enrol by, if there is one."""


@spec(AddedSiteView | InvitedSite, 201, body=NewSite, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """A new site; the answer holds its token, or with `with_code` a code by which it enrols, this once."""
    new = await call.read(NewSite)
    if new.with_code:
        invited = await call.operate.sites.invite(call.actor, new.name, _span(new.valid_s, "valid_s"))
        return ApiAnswer(InvitedSite(invited.name, invited.code, to_text(invited.expires_at)), 201)
    added = await call.operate.sites.add(call.actor, new.name)
    return ApiAnswer(AddedSiteView(added.name, added.token), 201)


@spec(SitesView)
async def show_all(call: Call) -> ApiAnswer:
    """All sites, and when each was last heard."""
    call.query()
    return ApiAnswer(SitesView([SiteView(**_view(site)) for site in await call.operate.sites.all()]))


@spec(SiteDetail)
async def show(call: Call) -> ApiAnswer:
    """One site and by what it comes in: its tokens, never themselves, and whether a code for it is open."""
    call.query()
    found = await call.watch.sites.access(call.path("name"))
    enrolment = found.enrolment
    return ApiAnswer(
        SiteDetail(
            **_view(found.record),
            tokens=[
                SiteTokenView(
                    prefix=token.prefix,
                    is_valid=token.is_valid(found.as_of),
                    created_at=to_text(token.created_at),
                    expires_at=to_text(token.expires_at) if token.expires_at else None,
                    revoked_at=to_text(token.revoked_at) if token.revoked_at else None,
                )
                for token in found.tokens
            ],
            enrolment=None
            if enrolment is None
            else EnrolmentView(enrolment.created_by, to_text(enrolment.created_at), to_text(enrolment.expires_at)),
        )
    )


@spec(AddedSiteView | InvitedSite, body=Rotation, problems=(409,))
async def rotate(call: Call) -> ApiAnswer:
    """A new token for a site, or with `with_code` a code for one; those it has end after `overlap_s`. A revoked site is
    taken back by it."""
    asked = await call.read(Rotation)
    name, overlap = call.path("name"), _span(asked.overlap_s, "overlap_s")
    if asked.with_code:
        valid = None if asked.valid_s is None else _span(asked.valid_s, "valid_s")
        invited = await call.operate.sites.rotate(call.actor, name, overlap, valid)
        return ApiAnswer(InvitedSite(invited.name, invited.code, to_text(invited.expires_at)))
    added = await call.operate.sites.rotate_token(call.actor, name, overlap)
    return ApiAnswer(AddedSiteView(added.name, added.token))


@spec(SiteView, problems=(409,))
async def revoke(call: Call) -> ApiAnswer:
    """Nothing that the site sends is taken from here on; its rows stay, and can be managed."""
    return ApiAnswer(SiteView(**_view(await call.operate.sites.revoke(call.actor, call.path("name")))))


def _span(seconds: float, field: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput("site.valid", f"{field} is no number of seconds to be had", field=field) from None


def _view(site: SiteRecord) -> dict[str, Any]:
    return {
        "name": site.name,
        "created_at": to_text(site.created_at),
        "last_seen_at": to_text(site.last_seen_at) if site.last_seen_at else None,
        "revoked_at": to_text(site.revoked_at) if site.revoked_at else None,
    }
