"""Sites: add, look, take note that one was there."""

import secrets
from dataclasses import dataclass, field

from sqlalchemy import Connection

from fieldpost.central.operate.acts import commit, record, require
from fieldpost.central.store import audit, identities
from fieldpost.central.store.engine import Store
from fieldpost.central.store.identities import SiteRecord
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict
from fieldpost.core.text import check_label
from fieldpost.link import credentials

SEEN_EVERY_S = 30.0
"""How exactly `last_seen_at` is kept for a site that talks all the time."""


@dataclass(frozen=True, slots=True)
class AddedSite:
    """A new site with its token, which is shown this once."""

    name: str
    token: str = field(repr=False)


class Sites:
    """What people do with sites."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, float] = {}

    async def add(self, actor: Actor, name: str) -> AddedSite:
        require(actor, Role.ADMIN, "site.add")
        check_label(name, "name")
        token = credentials.issue("site", secrets.token_bytes(credentials.ENTROPY_BYTES))
        entry = record(actor, "site.add", name, self._clock.now(), {"token": token.prefix})
        await commit(self._store, f"site {name!r}", _add, name, token, entry)
        return AddedSite(name, token.text)

    async def all(self) -> list[SiteRecord]:
        return await self._store.read(identities.all_sites)

    async def saw(self, name: str) -> None:
        """The site spoke just now; written at most every half minute."""
        now = self._clock.monotonic()
        if now - self._seen.get(name, -SEEN_EVERY_S) >= SEEN_EVERY_S:
            self._seen[name] = now
            await self._store.write(identities.saw_site, name, self._clock.now())


def _add(conn: Connection, name: str, token: credentials.IssuedToken, entry: AuditEntry) -> None:
    if identities.get_site(conn, name) is not None:
        raise Conflict("site.exists", f"there is a site named {name!r} already")
    identities.add_site(conn, name, entry.occurred_at)
    identities.add_token(conn, "site", token.prefix, token.digest, name, None, entry.occurred_at)
    audit.add(conn, [entry])
