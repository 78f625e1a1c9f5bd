"""`/sites`: add, look."""

import msgspec

from fieldpost.core.times import to_text
from fieldpost.front.api.call import Answer, Body, Call


class NewSite(Body, frozen=True):
    name: str


class AddedSite(msgspec.Struct, frozen=True):
    name: str
    token: str
    """Shown this once."""


class SiteView(msgspec.Struct, frozen=True):
    name: str
    created_at: str
    last_seen_at: str | None


class SitesView(msgspec.Struct, frozen=True):
    sites: list[SiteView]


async def add(call: Call) -> Answer:
    """A new site; the answer holds its token, this once."""
    new = await call.read(NewSite)
    added = await call.operate.sites.add(call.actor, new.name)
    return Answer(AddedSite(added.name, added.token), 201)


async def show_all(call: Call) -> Answer:
    """All sites, and when each was last heard."""
    call.query()
    found = await call.operate.sites.all()
    return Answer(
        SitesView(
            [
                SiteView(s.name, to_text(s.created_at), to_text(s.last_seen_at) if s.last_seen_at else None)
                for s in found
            ]
        )
    )
