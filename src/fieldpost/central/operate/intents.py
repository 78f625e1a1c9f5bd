"""Intents: an operator's requests to a site, kept until the site has carried them out. See `core.sites.intent`.

Creating one checks, audits and stores it; the site need not be online. The node that has the site's control connection
sends it (`central.commands`).
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, check_name, commit, not_found, record, require
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.sites import intents as rows
from fieldpost.central.store.sites import sites
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound, out_of_range
from fieldpost.core.ids import is_id, new_ids
from fieldpost.core.search.filters import SITE_EVENT_FILTERS
from fieldpost.core.sites.intent import Intent, IntentKind, check_cancel
from fieldpost.core.text import check_label

log = structlog.get_logger()

Named = tuple[str, str | None]
"""A site, and the id of the call or notification that the intent is about, if any."""

UNKNOWN_HINT = "fieldpost sites list shows all sites"
MESSAGES_MAX = 500
"""How many calls or notifications one action may name."""
OPEN_MAX = 10_000
"""How many intents of one site may be open."""
ROWS_MAX = 500
"""How many rows a query may ask for."""
EXPIRE_HOURS_MAX = 30 * 24.0
"""A site forgets later which commands it has applied, so no command may arrive after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOptions:
    """[intents]"""

    expire_after_h: float = 7 * 24.0
    """How long an intent waits for its site, in hours; at most 30 days."""

    def __post_init__(self) -> None:
        if not 0 < self.expire_after_h <= EXPIRE_HOURS_MAX:
            raise out_of_range("intents.expire_after_h", f"must be greater than 0 and at most {EXPIRE_HOURS_MAX:g}")


class Intents(Actions):
    """Actions on intents."""

    def __init__(self, store: Store, clock: Clock, options: IntentOptions | None = None) -> None:
        super().__init__(store, clock)
        self._expire_after = timedelta(hours=(options or IntentOptions()).expire_after_h)

    async def create(
        self,
        actor: Actor,
        site: str,
        kind: IntentKind,
        *,
        message_ids: Sequence[str] = (),
        arguments: Mapping[str, str | int] | None = None,
        reason: str | None = None,
    ) -> list[Intent]:
        """Create an intent for each named call or notification, or one for the whole site.

        Raises NotFound for an unknown site, InvalidInput for invalid arguments, Conflict when too many are open.
        """
        named: list[Named] = [(site, message_id) for message_id in message_ids] or [(site, None)]
        return await self._create(actor, kind, named, arguments or {}, reason)

    async def create_each(
        self, actor: Actor, kind: IntentKind, named: Sequence[tuple[str, str]], *, reason: str | None = None
    ) -> list[Intent]:
        """Create an intent for each call or notification, named by site and id: for all of them or for none.

        Raises the errors of `create`.
        """
        assert kind.names_message, "an intent for a whole site names no message"
        return await self._create(actor, kind, named, {}, reason)

    async def cancel(self, actor: Actor, intent_id: str) -> Intent:
        """Cancel an intent that was not sent yet; Conflict otherwise."""
        require(actor, Role.OPERATOR, "intent.cancel")
        return await self._store.write(_cancel, actor, intent_id, now=self._store.now())

    async def _create(
        self,
        actor: Actor,
        kind: IntentKind,
        named: Sequence[Named],
        arguments: Mapping[str, str | int],
        reason: str | None,
    ) -> list[Intent]:
        require(actor, Role.OPERATOR, f"intent.{kind.value}")
        _check(kind, [message_id for _, message_id in named if message_id is not None], arguments)
        if reason is not None:
            check_label(reason, "reason")
        for site, _ in named:
            check_name("site", site, UNKNOWN_HINT)
        created = await commit(
            self._store,
            "an intent",
            _create,
            actor,
            kind,
            list(dict.fromkeys(named)),
            dict(arguments),
            reason,
            self._expire_after,
            now=self._store.now(),
        )
        self._store.wake.set(WakeTopic.COMMANDS)
        return created


def _create(
    conn: Connection,
    actor: Actor,
    kind: IntentKind,
    named: Sequence[Named],
    arguments: Mapping[str, str | int],
    reason: str | None,
    expire_after: timedelta,
    *,
    now: datetime | None,
) -> list[Intent]:
    counts = Counter(site for site, _ in named)
    if unknown := sorted(counts.keys() - sites.known(conn, counts.keys())):
        raise not_found("site", unknown[0], UNKNOWN_HINT)
    are_open = rows.open_counts(conn)
    for site, count in counts.items():
        if are_open.get(site, 0) + count > OPEN_MAX:
            raise Conflict(
                "intent.too_many",
                f"at most {OPEN_MAX} intents of site {site!r} may be open",
                hint="cancel some of them, or wait",
            )
    at = database_time(conn, now)
    created = [
        Intent(
            intent_id=intent_id,
            site=site,
            kind=kind,
            message_id=message_id,
            arguments=arguments,
            reason=reason,
            actor=actor.name,
            created_at=at,
            expires_at=at + expire_after,
        )
        for intent_id, (site, message_id) in zip(new_ids(at, secrets.token_bytes(10 * len(named))), named, strict=True)
    ]
    rows.add(conn, created)
    audit.add(conn, [_entry(actor, f"intent.{kind.value}", intent, at) for intent in created])
    return created


def _cancel(conn: Connection, actor: Actor, intent_id: str, *, now: datetime | None) -> Intent:
    intent = _get(conn, intent_id)
    check_cancel(intent)
    at = database_time(conn, now)
    if not rows.cancel(conn, intent_id, f"by {actor.name}", now=at):
        check_cancel(_get(conn, intent_id))
    audit.add(conn, [_entry(actor, "intent.cancel", intent, at)])
    return _get(conn, intent_id)


def _get(conn: Connection, intent_id: str) -> Intent:
    found = rows.get(conn, intent_id)
    if found is None:
        raise NotFound("intent.unknown", "this intent does not exist")
    return found


def _entry(actor: Actor, action: str, intent: Intent, at: datetime) -> AuditEntry:
    extra: dict[str, object] = {"intent_id": intent.intent_id}
    if intent.reason is not None:
        extra["reason"] = intent.reason
    if intent.arguments:
        extra["arguments"] = dict(intent.arguments)
    entry = record(actor, action, intent.message_id or intent.site, at, extra)
    return replace(entry, correlation_id=intent.message_id, source_site_id=intent.site)


_ARGUMENTS: Mapping[IntentKind, frozenset[str]] = {
    IntentKind.LIST_PARKED: frozenset({"limit", "cursor"}),
    IntentKind.LIST_REJECTED: frozenset({"limit", "cursor"}),
    IntentKind.QUERY_EVENTS: frozenset({"limit", "cursor", *(field.name for field in SITE_EVENT_FILTERS)}),
}


def _check(kind: IntentKind, message_ids: Sequence[str], arguments: Mapping[str, str | int]) -> None:
    if kind.names_message:
        if not 1 <= len(message_ids) <= MESSAGES_MAX:
            raise InvalidInput("intent.messages", f"message_ids must name 1 to {MESSAGES_MAX} ids", field="message_ids")
        for message_id in message_ids:
            if not is_id(message_id):
                raise InvalidInput("intent.bad_id", "message_ids must be lower-case UUIDs", field="message_ids")
    elif message_ids:
        raise InvalidInput("intent.messages", f"{kind.value} takes no message_ids", field="message_ids")
    for name, value in arguments.items():
        if name not in _ARGUMENTS.get(kind, frozenset()):
            raise InvalidInput("intent.argument", f"{kind.value} takes no argument {name[:64]!r}", field=name[:64])
        if isinstance(value, str):
            check_label(value, name)
    limit = arguments.get("limit", 1)
    if not isinstance(limit, int) or not 1 <= limit <= ROWS_MAX:
        raise InvalidInput("limit.range", f"limit must be from 1 to {ROWS_MAX}", field="limit")
