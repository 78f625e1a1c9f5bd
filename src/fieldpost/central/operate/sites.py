"""Sites and their nodes: add, enrol, rotate tokens, revoke; and record when a site was last seen.

A site is identified by its token, which the site makes itself. A person gives the site a *code*, valid for one exchange
and a short time; the site sends the code with the digest of its new token. A pasted code is soon worthless, and the
token is sent only to authenticate. A program that cannot enrol this way gets a token made by central.

A site has one node, or two that form a pair. A token belongs to one node, is rotated and revoked with it, and is the
only proof of which node speaks.

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
from fieldpost.central.store.sites import nodes
from fieldpost.central.store.sites import sites as rows
from fieldpost.central.store.sites.sites import Enrolment, SiteRecord
from fieldpost.clock import Clock
from fieldpost.core.actor import APP, Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound
from fieldpost.core.sites.node import FIRST_NODE, NODES, SiteNode, free_node
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
    """A node of a site with its new token, which is shown only now."""

    name: str
    token: str = field(repr=False)
    node: int = FIRST_NODE


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code with which a node of a site enrols, shown only now."""

    name: str
    code: str = field(repr=False)
    expires_at: datetime
    node: int = FIRST_NODE


@dataclass(frozen=True, slots=True)
class Claimant:
    """A node that presents a code: prefix and digest of its new token, and its site and number if it has them."""

    prefix: str
    digest: bytes
    site: str | None = None
    node: int | None = None


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

    async def add_node(self, actor: Actor, name: str, valid: timedelta = VALID_DEFAULT) -> Invitation:
        """Add the second node of a site; returns the code with which it enrols. Conflict if the site has two."""
        require(actor, Role.ADMIN, "site.add_node")
        _check_span(valid, "valid_s")
        invitation, enrolment = self._invitation(actor, name, valid)
        return replace(invitation, node=await self._add_node(actor, name, enrolment))

    async def add_node_token(self, actor: Actor, name: str) -> AddedSite:
        """The same with a token made by central."""
        require(actor, Role.ADMIN, "site.add_node")
        token = issue("site")
        return AddedSite(name, token.text, await self._add_node(actor, name, token))

    async def remove_node(self, actor: Actor, name: str, node: int) -> SiteRecord:
        """Remove one of two nodes: its tokens and codes stop working, the other node continues."""
        entry = self._begin(actor, Role.ADMIN, "site.remove_node", name, {"node": node})
        check_name("site", name)
        record_ = await commit(self._store, f"site {name!r}", _remove_node, name, node, entry)
        self._store.wake.set(WakeTopic.SITE_TOKENS)
        return record_

    async def rotate(
        self,
        actor: Actor,
        name: str,
        overlap: timedelta = OVERLAP_DEFAULT,
        valid: timedelta | None = None,
        *,
        node: int | None = None,
    ) -> Invitation:
        """A new code for a node of an existing site. Its tokens end after the overlap; a revoked site is restored.

        `node` is required for a site with two nodes.
        """
        valid = valid or max(overlap, VALID_DEFAULT)
        self._check_rotation(actor, overlap)
        _check_span(valid, "valid_s")
        invitation, enrolment = self._invitation(actor, name, valid)
        return replace(invitation, node=await self._rotate(actor, name, node, overlap, enrolment))

    async def rotate_token(
        self, actor: Actor, name: str, overlap: timedelta = OVERLAP_DEFAULT, *, node: int | None = None
    ) -> AddedSite:
        """The same with a token made by central."""
        self._check_rotation(actor, overlap)
        token = issue("site")
        return AddedSite(name, token.text, await self._rotate(actor, name, node, overlap, token))

    async def revoke(self, actor: Actor, name: str) -> SiteRecord:
        """Refuse all further messages of the site; the messages it has sent stay."""
        entry = self._begin(actor, Role.ADMIN, "site.revoke", name)
        check_name("site", name)
        revoked = await commit(self._store, f"site {name!r}", _revoke, name, entry)
        self._store.wake.set(WakeTopic.SITE_TOKENS)
        return revoked

    async def join(self, code: str, claimant: Claimant) -> SiteNode:
        """Enrol the claimant as the node of this code; returns the site and the node.

        Raises Denied, with the same text for every reason. A repetition with the same token succeeds.
        """
        prefix = credentials.prefix_of(code, "join")
        if prefix is None:
            raise no_code()
        if claimant.prefix == prefix or not credentials.is_prefix(claimant.prefix):
            raise InvalidInput("join.prefix", "prefix must consist of twelve letters and digits", field="prefix")
        entry = record(Actor("site", Role.VIEWER), "site.join", "", self._clock.now(), {"token": claimant.prefix})
        joined = await commit(self._store, "the site", _join, code, prefix, claimant, entry)
        log.info("site.joined", site=joined.site, node=joined.node, token=claimant.prefix)
        return joined

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

    async def _add_node(self, actor: Actor, name: str, new: Enrolment | IssuedToken) -> int:
        check_name("site", name)
        entry = record(actor, "site.add_node", name, self._clock.now(), _prefix_of(new))
        return await commit(self._store, f"site {name!r}", _add_node, name, new, entry)

    async def _rotate(
        self, actor: Actor, name: str, node: int | None, overlap: timedelta, new: Enrolment | IssuedToken
    ) -> int:
        check_name("site", name)
        extra = {**_prefix_of(new), "overlap_s": _seconds(overlap)}
        entry = record(actor, "site.rotate", name, self._clock.now(), extra)
        rotated = await commit(self._store, f"site {name!r}", _rotate, name, node, overlap, new, entry)
        self._store.wake.set(WakeTopic.SITE_TOKENS)
        return rotated

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
    _add_credential(conn, SiteNode(name), new, entry.occurred_at)
    audit.add(conn, [entry])


def _add_node(conn: Connection, name: str, new: Enrolment | IssuedToken, entry: AuditEntry) -> int:
    site = present(rows.get(conn, name, locked=True), "site", name)
    if site.revoked_at is not None:
        raise Conflict(
            "site.revoked", f"site {name!r} is revoked", hint="readmit it first: fieldpost sites rotate-token NAME"
        )
    node = free_node(nodes.of_site(conn, name))
    if node is None:
        raise Conflict(
            "site.two_nodes",
            f"site {name!r} has two nodes already, the maximum",
            hint="for a new token of a node: fieldpost sites rotate-token NAME --node NODE;"
            " to replace a node, remove it first: fieldpost sites remove-node NAME NODE",
        )
    nodes.add(conn, name, node, entry.occurred_at)
    _add_credential(conn, SiteNode(name, node), new, entry.occurred_at)
    audit.add(conn, [_of_node(entry, node)])
    return node


def _remove_node(conn: Connection, name: str, node: int, entry: AuditEntry) -> SiteRecord:
    site = present(rows.get(conn, name, locked=True), "site", name)
    if _checked_node(conn, name, node) == [node]:
        raise Conflict(
            "site.last_node",
            f"node {node} is the only node of site {name!r}",
            hint="to refuse everything from the site: fieldpost sites revoke NAME",
        )
    rows.revoke_tokens(conn, name, entry.occurred_at, node)
    rows.end_enrolments(conn, name, entry.occurred_at, node)
    nodes.remove(conn, name, node)
    audit.add(conn, [entry])
    return site


def _rotate(
    conn: Connection,
    name: str,
    node: int | None,
    overlap: timedelta,
    new: Enrolment | IssuedToken,
    entry: AuditEntry,
) -> int:
    present(rows.get(conn, name, locked=True), "site", name)
    known = _checked_node(conn, name, node)
    if node is None and len(known) > 1:
        raise InvalidInput("site.node", f"site {name!r} has two nodes; node must be 0 or 1", field="node")
    chosen = known[0] if node is None else node
    rows.end_tokens(conn, name, chosen, entry.occurred_at + overlap)
    rows.set_revoked(conn, name, None)
    _add_credential(conn, SiteNode(name, chosen), new, entry.occurred_at)
    audit.add(conn, [entry if known == [FIRST_NODE] else _of_node(entry, chosen)])
    return chosen


def _checked_node(conn: Connection, name: str, node: int | None) -> list[int]:
    """The nodes of the site. Raises InvalidInput or NotFound if the given one is not among them."""
    if node is not None and node not in NODES:
        raise InvalidInput("site.node", f"node must be 0 or 1, got {node}", field="node")
    known = nodes.of_site(conn, name)
    if node is not None and node not in known:
        raise NotFound("site.node_unknown", f"site {name!r} has no node {node}", hint="fieldpost sites show NAME")
    return known


def _add_credential(conn: Connection, of: SiteNode, new: Enrolment | IssuedToken, now: datetime) -> None:
    if isinstance(new, Enrolment):
        rows.add_enrolment(conn, replace(new, node=of.node))
    else:
        identities.add_token(conn, TokenRecord(new.prefix, "site", new.digest, of.site, None, now, node=of.node))


def _of_node(entry: AuditEntry, node: int) -> AuditEntry:
    return replace(entry, extra={**(entry.extra or {}), "node": node})


def _prefix_of(new: Enrolment | IssuedToken) -> dict[str, object]:
    return {"token" if isinstance(new, IssuedToken) else "code": new.prefix}


def _revoke(conn: Connection, name: str, entry: AuditEntry) -> SiteRecord:
    found = present(rows.get(conn, name, locked=True), "site", name)
    if found.revoked_at is None:
        rows.revoke_tokens(conn, name, entry.occurred_at)
        rows.end_enrolments(conn, name, entry.occurred_at)
        rows.set_revoked(conn, name, entry.occurred_at)
        audit.add(conn, [entry])
    return rows.get(conn, name) or found


def _join(conn: Connection, code: str, prefix: str, claimant: Claimant, entry: AuditEntry) -> SiteNode:
    found = rows.get_enrolment(conn, prefix)
    if found is None or not credentials.matches(code, found.digest):
        raise no_code()
    name, joined = found.site_name, SiteNode(found.site_name, found.node)
    if claimant.site is not None and claimant.site != name:
        raise Conflict(
            "join.other_site",
            f"the code is for site {name!r}, but this folder belongs to site {claimant.site!r}",
            hint="use it in the folder of that site, or in a new folder",
        )
    if claimant.node is not None and claimant.node != found.node:
        raise Conflict(
            "join.other_node",
            f"the code is for node {found.node} of site {name!r}, but this folder belongs to node {claimant.node}",
            hint="use it in the folder of that node, on its own machine",
        )
    if found.ended_at is not None and _has_token(conn, joined, claimant):
        return joined  # a repetition: only the answer was lost
    if found.ended_at is not None or found.expires_at <= entry.occurred_at:
        raise no_code()
    rows.end_enrolment(conn, prefix, entry.occurred_at)
    token = TokenRecord(claimant.prefix, "site", claimant.digest, name, None, entry.occurred_at, node=found.node)
    identities.add_token(conn, token)
    rows.saw(conn, [name], entry.occurred_at)
    entry = entry if nodes.of_site(conn, name) == [FIRST_NODE] else _of_node(entry, found.node)
    audit.add(conn, [replace(entry, actor=name, target=name)])
    return joined


def _has_token(conn: Connection, joined: SiteNode, claimant: Claimant) -> bool:
    token = identities.get_token(conn, "site", claimant.prefix)
    if token is None or SiteNode(token.owner, token.node) != joined:
        return False
    if token.revoked_at is not None or token.expires_at is not None:
        return False
    return hmac.compare_digest(token.digest, claimant.digest)


def no_code() -> Denied:
    """The same error for every reason, so that nobody can guess codes."""
    return Denied(
        "auth.code",
        "the code is not valid: it is wrong, used, replaced or expired",
        hint="ask for a new code: fieldpost sites rotate-token NAME",
    )
