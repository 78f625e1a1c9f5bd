"""`/sites`: add, list and show sites, rotate their tokens, revoke them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from fieldpost.central.operate.sites import OVERLAP_DEFAULT, VALID_DEFAULT, AddedSite, Invitation, SiteRecord
from fieldpost.central.watch.sites import Enrolment, SiteCredentials, SiteToken
from fieldpost.core.errors import InvalidInput
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, listing, within


class NewSite(Body, frozen=True, kw_only=True):
    name: str
    with_code: bool = False
    """Return an enrolment code instead of a token."""
    valid_s: float = VALID_DEFAULT.total_seconds()


class Rotation(Body, frozen=True, kw_only=True):
    overlap_s: float = OVERLAP_DEFAULT.total_seconds()
    with_code: bool = False
    valid_s: float | None = None


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A site token and whether it is valid now."""

    token: SiteToken
    is_valid: bool


def _tokens(found: SiteCredentials) -> list[ShownToken]:
    return [ShownToken(token, token.is_valid(found.as_of)) for token in found.tokens]


ADDED = View("AddedSiteView", AddedSite, "name token", description="The token is shown only once.")
INVITED = View("InvitedSite", Invitation, "name code expires_at", description="The code is shown only once.")
SITE = View("SiteView", SiteRecord, "name created_at last_seen_at revoked_at")
SITES = listing("SitesView", "sites", SITE)
TOKEN = View(
    "SiteTokenView",
    ShownToken,
    "prefix=token.prefix is_valid",
    within("token", "created_at expires_at revoked_at"),
)
ENROLMENT = View("EnrolmentView", Enrolment, "created_by created_at expires_at")
SITE_DETAIL = View(
    "SiteDetail",
    SiteCredentials,
    within("record", "name created_at last_seen_at revoked_at"),
    ViewField("tokens", _tokens, TOKEN),
    ViewField("enrolment", view=ENROLMENT),
    description="`enrolment` is the enrolment code that is still open, if there is one.",
)


@spec((ADDED, INVITED), 201, body=NewSite, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """Add a site. The response contains its token, or with `with_code` an enrolment code; either is shown only once."""
    new = await call.read(NewSite)
    if new.with_code:
        invited = await call.operate.sites.invite(call.actor, new.name, _span(new.valid_s, "valid_s"))
        return ApiAnswer(invited, view=INVITED)
    return ApiAnswer(await call.operate.sites.add(call.actor, new.name), view=ADDED)


@spec(SITES)
async def show_all(call: Call) -> Sequence[SiteRecord]:
    """List all sites with the time of their last connection."""
    return await call.operate.sites.all()


@spec(SITE_DETAIL)
async def show(call: Call) -> SiteCredentials:
    """Show one site with its tokens, by prefix, and its open enrolment code."""
    return await call.watch.sites.access(call.path("name"))


@spec((ADDED, INVITED), body=Rotation, problems=(409,))
async def rotate(call: Call) -> ApiAnswer:
    """Issue a new token for a site, or with `with_code` an enrolment code. Existing tokens expire after `overlap_s`. A
    revoked site is reinstated."""
    wanted = await call.read(Rotation)
    name, overlap = call.path("name"), _span(wanted.overlap_s, "overlap_s")
    if wanted.with_code:
        valid = None if wanted.valid_s is None else _span(wanted.valid_s, "valid_s")
        return ApiAnswer(await call.operate.sites.rotate(call.actor, name, overlap, valid), view=INVITED)
    return ApiAnswer(await call.operate.sites.rotate_token(call.actor, name, overlap), view=ADDED)


@spec(SITE, problems=(409,))
async def revoke(call: Call) -> SiteRecord:
    """Revoke a site: central rejects everything that it sends. Its rows stay and can be managed."""
    return await call.operate.sites.revoke(call.actor, call.path("name"))


def _span(seconds: float, field: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput("site.valid", f"{field} is too large or not a number", field=field) from None
