"""`/sites`: add, list and show sites, add and remove their nodes, rotate their tokens, revoke them."""

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


class NewNode(Body, frozen=True, kw_only=True):
    with_code: bool = False
    """Return an enrolment code instead of a token."""
    valid_s: float = VALID_DEFAULT.total_seconds()


class RemovedNode(Body, frozen=True, kw_only=True):
    node: int
    """0 or 1."""


class Rotation(Body, frozen=True, kw_only=True):
    node: int | None = None
    """The node whose tokens are replaced; required for a site with two nodes."""
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


ADDED = View("AddedSiteView", AddedSite, "name node token", description="The token is shown only once.")
INVITED = View("InvitedSite", Invitation, "name node code expires_at", description="The code is shown only once.")
SITE = View("SiteView", SiteRecord, "name created_at last_seen_at revoked_at")
SITES = listing("SitesView", "sites", SITE)
TOKEN = View(
    "SiteTokenView",
    ShownToken,
    "prefix=token.prefix node=token.node is_valid",
    within("token", "created_at expires_at revoked_at"),
)
ENROLMENT = View("EnrolmentView", Enrolment, "node created_by created_at expires_at")
SITE_DETAIL = View(
    "SiteDetail",
    SiteCredentials,
    within("record", "name created_at last_seen_at revoked_at"),
    "nodes",
    ViewField("tokens", _tokens, TOKEN),
    ViewField("enrolments", view=ENROLMENT),
    description="`nodes` are the numbers of the site's nodes: 0 and 1 for a pair. `enrolments` are the enrolment codes "
    "that are still open.",
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
    """Show one site with its nodes, its tokens, by prefix, and its open enrolment codes."""
    return await call.watch.sites.access(call.path("name"))


@spec((ADDED, INVITED), body=Rotation, problems=(409,))
async def rotate(call: Call) -> ApiAnswer:
    """Issue a new token for a node of a site, or with `with_code` an enrolment code. The node's existing tokens expire
    after `overlap_s`. A revoked site is reinstated."""
    wanted = await call.read(Rotation)
    name, overlap, sites = call.path("name"), _span(wanted.overlap_s, "overlap_s"), call.operate.sites
    if wanted.with_code:
        valid = None if wanted.valid_s is None else _span(wanted.valid_s, "valid_s")
        return ApiAnswer(await sites.rotate(call.actor, name, overlap, valid, node=wanted.node), view=INVITED)
    return ApiAnswer(await sites.rotate_token(call.actor, name, overlap, node=wanted.node), view=ADDED)


@spec((ADDED, INVITED), 201, body=NewNode, problems=(409,))
async def add_node(call: Call) -> ApiAnswer:
    """Add the second node of a site. The response contains its token, or with `with_code` an enrolment code; either is
    shown only once."""
    new, name = await call.read(NewNode), call.path("name")
    if new.with_code:
        invited = await call.operate.sites.add_node(call.actor, name, _span(new.valid_s, "valid_s"))
        return ApiAnswer(invited, view=INVITED)
    return ApiAnswer(await call.operate.sites.add_node_token(call.actor, name), view=ADDED)


@spec(SITE, body=RemovedNode, problems=(409,))
async def remove_node(call: Call) -> SiteRecord:
    """Remove one of the two nodes of a site: its tokens and codes stop working. The other node continues."""
    removed = await call.read(RemovedNode)
    return await call.operate.sites.remove_node(call.actor, call.path("name"), removed.node)


@spec(SITE, problems=(409,))
async def revoke(call: Call) -> SiteRecord:
    """Revoke a site: central rejects everything that it sends. Its rows stay and can be managed."""
    return await call.operate.sites.revoke(call.actor, call.path("name"))


def _span(seconds: float, field: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput("site.valid", f"{field} is too large or not a number", field=field) from None
