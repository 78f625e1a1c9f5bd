"""Sites: add, enrol, rotate tokens, revoke; and record when a site was last seen.

A site is identified by its token, which the site makes itself. A person gives the site a *code*, valid for one exchange
and a short time; the site sends the code with the digest of its new token. A pasted code is soon worthless, and the
token is sent only to authenticate. A program that cannot enrol this way gets a token made by central.

A revoked site keeps its rows, health and history; central refuses its messages until it has a new token.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.accounts import issue
from fieldpost.central.access.audit_trail import Actions, check_name, commit, present, record, require
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import TokenRecord
from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.sites import sites as rows
from fieldpost.central.store.sites.sites import Enrolment, SiteRecord
from fieldpost.clock import Clock
from fieldpost.core.actor import APP, Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, Denied, InvalidInput
from fieldpost.core.text import check_label, check_path_name
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken

__all__ = [
    "OVERLAP_DEFAULT",
    "VALID_DEFAULT",
    "AddedSite",
    "Claimant",
    "Invitation",
    "SiteActions",
    "SiteRecord",
    "no_code",
]

SEEN_EVERY_S = 30.0
"""The precision of `last_seen_at`."""
VALID_DEFAULT = timedelta(hours=1)
"""How long a code is valid."""
OVERLAP_DEFAULT = timedelta(hours=24)
"""How long the old token of a site keeps working after a rotation."""
VALID_MAX = timedelta(days=30)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AddedSite:
    """A new site with its token, which is shown only now."""

    name: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code with which a site enrols, shown only now."""

    name: str
    code: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Claimant:
    """A site that presents a code: prefix and digest of its new token, and its name if it already has one."""

    prefix: str
    digest: bytes
    site: str | None = None


class SiteActions(Actions):
    """Actions on sites."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._seen: dict[str, float] = {}
        self._sightings = Batcher(self._write_seen)

    async def add(self, actor: Actor, name: str) -> AddedSite:
        """Add a site with a token made by central, for programs that install it themselves."""
        require(actor, Role.ADMIN, "site.add")
        _check_name(name)
        token = issue("site")
        entry = record(actor, "site.add", name, self._clock.now(), {"token": token.prefix})
        await commit(self._store, f"site {name!r}", _add, name, entry, token)
        return AddedSite(name, token.text)

    async def invite(self, actor: Actor, name: str, valid: timedelta = VALID_DEFAULT) -> Invitation:
        """Add a site; returns the code with which it enrols."""
        require(actor, Role.ADMIN, "site.add")
        _check_name(name)
        _check_span(valid, "valid_s")
        invitation, enrolment = self._invitation(actor, name, valid)
        entry = record(actor, "site.add", name, self._clock.now(), {"code": enrolment.prefix})
        await commit(self._store, f"site {name!r}", _add, name, entry, enrolment)
        return invitation

    async def rotate(
        self, actor: Actor, name: str, overlap: timedelta = OVERLAP_DEFAULT, valid: timedelta | None = None
    ) -> Invitation:
        """A new code for an existing site. Its tokens end after the overlap; a revoked site is restored."""
        valid = valid or max(overlap, VALID_DEFAULT)
        self._check_rotation(actor, overlap)
        _check_span(valid, "valid_s")
        invitation, enrolment = self._invitation(actor, name, valid)
        await self._rotate(actor, name, overlap, enrolment)
        return invitation

    async def rotate_token(self, actor: Actor, name: str, overlap: timedelta = OVERLAP_DEFAULT) -> AddedSite:
        """The same with a token made by central."""
        self._check_rotation(actor, overlap)
        token = issue("site")
        await self._rotate(actor, name, overlap, token)
        return AddedSite(name, token.text)

    async def revoke(self, actor: Actor, name: str) -> SiteRecord:
        """Refuse all further messages of the site; the messages it has sent stay."""
        entry = self._begin(actor, Role.ADMIN, "site.revoke", name)
        check_name("site", name)
        revoked = await commit(self._store, f"site {name!r}", _revoke, name, entry)
        self._store.wake.set(WakeTopic.SITE_TOKENS)
        return revoked

    async def join(self, code: str, claimant: Claimant) -> str:
        """Enrol the claimant as the site of this code; returns the name of the site.

        Raises Denied, with the same text for every reason. A repetition with the same token succeeds.
        """
        prefix = credentials.prefix_of(code, "join")
        if prefix is None:
            raise no_code()
        if claimant.prefix == prefix or not credentials.is_prefix(claimant.prefix):
            raise InvalidInput("join.prefix", "prefix must consist of twelve letters and digits", field="prefix")
        entry = record(Actor("site", Role.VIEWER), "site.join", "", self._clock.now(), {"token": claimant.prefix})
        name = await commit(self._store, "the site", _join, code, prefix, claimant, entry)
        log.info("site.joined", site=name, token=claimant.prefix)
        return name

    async def all(self) -> list[SiteRecord]:
        return await self._store.read(rows.all_sites)

    async def saw(self, name: str) -> None:
        """Record that the site sent something, at most every half minute."""
        now = self._clock.monotonic()
        if now - self._seen.get(name, -SEEN_EVERY_S) >= SEEN_EVERY_S:
            self._seen[name] = now
            await self._sightings.submit(name)

    async def _write_seen(self, names: Sequence[str]) -> Sequence[None]:
        await self._store.write(rows.saw, names, self._clock.now())
        return [None] * len(names)

    def _check_rotation(self, actor: Actor, overlap: timedelta) -> None:
        require(actor, Role.ADMIN, "site.rotate")
        if not timedelta(0) <= overlap <= VALID_MAX:
            raise InvalidInput("site.overlap", f"overlap_s must be 0 to {_seconds(VALID_MAX)}", field="overlap_s")

    async def _rotate(self, actor: Actor, name: str, overlap: timedelta, new: Enrolment | IssuedToken) -> None:
        check_name("site", name)
        extra = {"token" if isinstance(new, IssuedToken) else "code": new.prefix, "overlap_s": _seconds(overlap)}
        entry = record(actor, "site.rotate", name, self._clock.now(), extra)
        await commit(self._store, f"site {name!r}", _rotate, name, overlap, new, entry)
        self._store.wake.set(WakeTopic.SITE_TOKENS)

    def _invitation(self, actor: Actor, name: str, valid: timedelta) -> tuple[Invitation, Enrolment]:
        code, now = issue("join"), self._clock.now()
        enrolment = Enrolment(code.prefix, code.digest, name, actor.name, now, now + valid)
        return Invitation(name, code.text, enrolment.expires_at), enrolment


def _check_name(name: str) -> None:
    check_path_name(check_label(name, "name"), "name")
    if name.startswith(APP):
        raise InvalidInput("site.name", f"name must not begin with {APP}, which marks applications", field="name")


def _check_span(span: timedelta, field: str) -> None:
    if not timedelta(seconds=1) <= span <= VALID_MAX:
        raise InvalidInput("site.valid", f"{field} must be between 1 and {_seconds(VALID_MAX)}", field=field)


def _seconds(span: timedelta) -> int:
    return round(span.total_seconds())


def _add(conn: Connection, name: str, entry: AuditEntry, new: Enrolment | IssuedToken) -> None:
    if rows.get(conn, name) is not None:
        raise Conflict(
            "site.exists",
            f"site {name!r} already exists",
            hint="to get a new code: fieldpost sites rotate-token NAME",
        )
    rows.add(conn, name, entry.occurred_at)
    _add_credential(conn, name, new, entry.occurred_at)
    audit.add(conn, [entry])


def _rotate(conn: Connection, name: str, overlap: timedelta, new: Enrolment | IssuedToken, entry: AuditEntry) -> None:
    present(rows.get(conn, name, locked=True), "site", name)
    rows.end_tokens(conn, name, entry.occurred_at + overlap)
    rows.set_revoked(conn, name, None)
    _add_credential(conn, name, new, entry.occurred_at)
    audit.add(conn, [entry])


def _add_credential(conn: Connection, name: str, new: Enrolment | IssuedToken, now: datetime) -> None:
    if isinstance(new, Enrolment):
        rows.add_enrolment(conn, new)
    else:
        identities.add_token(conn, TokenRecord(new.prefix, "site", new.digest, name, None, now))


def _revoke(conn: Connection, name: str, entry: AuditEntry) -> SiteRecord:
    found = present(rows.get(conn, name, locked=True), "site", name)
    if found.revoked_at is None:
        rows.revoke_tokens(conn, name, entry.occurred_at)
        rows.end_enrolments(conn, name, entry.occurred_at)
        rows.set_revoked(conn, name, entry.occurred_at)
        audit.add(conn, [entry])
    return rows.get(conn, name) or found


def _join(conn: Connection, code: str, prefix: str, claimant: Claimant, entry: AuditEntry) -> str:
    found = rows.get_enrolment(conn, prefix)
    if found is None or not credentials.matches(code, found.digest):
        raise no_code()
    name = found.site_name
    if claimant.site is not None and claimant.site != name:
        raise Conflict(
            "join.other_site",
            f"the code is for site {name!r}, but this folder belongs to site {claimant.site!r}",
            hint="use it in the folder of that site, or in a new folder",
        )
    if found.ended_at is not None and _has_token(conn, name, claimant):
        return name  # a repetition: only the answer was lost
    if found.ended_at is not None or found.expires_at <= entry.occurred_at:
        raise no_code()
    rows.end_enrolment(conn, prefix, entry.occurred_at)
    token = TokenRecord(claimant.prefix, "site", claimant.digest, name, None, entry.occurred_at)
    identities.add_token(conn, token)
    audit.add(conn, [replace(entry, actor=name, target=name)])
    return name


def _has_token(conn: Connection, name: str, claimant: Claimant) -> bool:
    token = identities.get_token(conn, "site", claimant.prefix)
    if token is None or token.owner != name or token.revoked_at is not None or token.expires_at is not None:
        return False
    return hmac.compare_digest(token.digest, claimant.digest)


def no_code() -> Denied:
    """The same error for every reason, so that nobody can guess codes."""
    return Denied(
        "auth.code",
        "the code is not valid: it is wrong, used, replaced or expired",
        hint="ask for a new code: fieldpost sites rotate-token NAME",
    )
