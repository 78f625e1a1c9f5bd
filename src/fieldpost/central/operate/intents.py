"""Intents: an operator's word to a site, kept until the site has done it. See `core.intent` for their life.

Giving one checks, audits and stores it; whether the site is there does not matter. The node that holds the site's
control connection sends what is open (`to_send`) and writes what the site answers (`settle`).
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import commit, is_name, record, require
from fieldpost.central.store.engine.moment import moment
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.sites import intents as rows
from fieldpost.central.store.sites import sites
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import ConfigError, Conflict, InvalidInput, NotFound
from fieldpost.core.ids import is_id, new_ids
from fieldpost.core.sites.intent import Intent, IntentKind, IntentOutcome, check_cancel, takes_result
from fieldpost.core.text import ERROR_BYTES_MAX, check_label, truncate
from fieldpost.link.messages import Cell, Command, CommandResult

log = structlog.get_logger()

Named = tuple[str, str | None]
"""A site, and which of its calls or notifications an intent is about, if it is about one."""

MESSAGES_MAX = 500
"""How many calls or notifications one act may name."""
OPEN_MAX = 10_000
"""How many intents may be open for one site."""
ROWS_MAX = 500
ANSWER_BYTES_MAX = 256 * 1024
"""What a site answers to a look is kept up to here."""
CELLS_MAX = 32
EXPIRE_HOURS_MAX = 30 * 24.0
"""A site forgets which commands it has applied some time after this, so that none may come later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOptions:
    """[intents]"""

    expire_after_h: float = 7 * 24.0
    """How long an intent waits for its site, in hours; at most 30 days."""

    def __post_init__(self) -> None:
        if not 0 < self.expire_after_h <= EXPIRE_HOURS_MAX:
            raise ConfigError(
                "settings.range",
                f"intents.expire_after_h must be greater than 0 and at most {EXPIRE_HOURS_MAX:g}",
                field="intents.expire_after_h",
            )


class Intents:
    """What people want done at sites."""

    def __init__(self, store: Store, clock: Clock, options: IntentOptions | None = None) -> None:
        self._store = store
        self._clock = clock
        self._expire_after = timedelta(hours=(options or IntentOptions()).expire_after_h)

    async def give(
        self,
        actor: Actor,
        site: str,
        kind: IntentKind,
        *,
        message_ids: Sequence[str] = (),
        arguments: Mapping[str, str | int] | None = None,
        reason: str | None = None,
    ) -> list[Intent]:
        """An intent for each call or notification named, or the one of a kind that names none.

        Raises NotFound for an unknown site, InvalidInput for what no site could do, Conflict when too many are open.
        """
        named: list[Named] = [(site, message_id) for message_id in message_ids] or [(site, None)]
        return await self._give(actor, kind, named, arguments or {}, reason)

    async def give_each(
        self, actor: Actor, kind: IntentKind, named: Sequence[tuple[str, str]], *, reason: str | None = None
    ) -> list[Intent]:
        """An intent for each call or notification, named by its site and its id: for all of them, or for none.

        Raises as `give`; one unknown site, or one with too many open, is enough.
        """
        assert kind.names_message, "what is about a whole site is given to it alone"
        return await self._give(actor, kind, named, {}, reason)

    async def cancel(self, actor: Actor, intent_id: str) -> Intent:
        """Take back what was not sent yet; Conflict otherwise."""
        require(actor, Role.OPERATOR, "intent.cancel")
        return await self._store.write(_cancel, actor, intent_id, now=self._store.now())

    async def expire(self) -> None:
        """End what waited for too long."""
        if expired := await self._store.write(rows.expire, now=self._store.now()):
            log.warning("intents.expired", ids=expired[:10], count=len(expired))

    async def awaited(self) -> dict[str, int]:
        """How many intents are open, by site."""
        return await self._store.read(rows.open_counts)

    async def open_of(self, sites: Sequence[str], limit: int) -> list[Intent]:
        """What is open for these sites, the oldest first."""
        return await self._store.read(rows.open_of, sites, limit) if sites else []

    async def to_send(self, given: Sequence[Intent]) -> list[Command]:
        """The commands to be sent now for these intents, noted as sent; what was cancelled meanwhile is not among them.

        It is written before it is sent: a crash between the two only means that it is sent again.
        """
        may = await self._store.write(rows.sent, [i.intent_id for i in given], now=self._store.now())
        return [_command(intent) for intent in given if intent.intent_id in may]

    async def settle(self, site: str, result: CommandResult) -> Intent:
        """Keep what the site says of its own intent; one that is settled stays as it is.

        Raises NotFound when it is none of this site's, InvalidInput when the outcome is no word that is known.
        """
        outcome = _outcome(result.outcome)
        detail = None if result.detail is None else truncate(result.detail)
        answer = None if result.rows is None else _answer(result.rows, result.next)
        settled = await self._store.write(
            _settle, site, result.intent_id, outcome, detail, answer, now=self._store.now()
        )
        log.info("intent.done", intent_id=result.intent_id, site=site, kind=settled.kind.value, outcome=outcome.value)
        return settled

    async def _give(
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
            if not is_name(site):
                raise _unknown_site(site)
        return await commit(
            self._store,
            "what the sites are to do",
            _give,
            actor,
            kind,
            list(dict.fromkeys(named)),
            dict(arguments),
            reason,
            self._expire_after,
            now=self._store.now(),
        )


def _give(
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
        raise _unknown_site(unknown[0])
    are_open = rows.open_counts(conn)
    for site, count in counts.items():
        if are_open.get(site, 0) + count > OPEN_MAX:
            raise Conflict(
                "intent.too_many",
                f"more than {OPEN_MAX} intents would be open for {site!r}",
                hint="cancel some, or wait",
            )
    at = moment(conn, now)
    given = [
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
    rows.add(conn, given)
    audit.add(conn, [_entry(actor, f"intent.{kind.value}", intent, at) for intent in given])
    return given


def _cancel(conn: Connection, actor: Actor, intent_id: str, *, now: datetime | None) -> Intent:
    intent = _get(conn, intent_id)
    check_cancel(intent)
    at = moment(conn, now)
    if not rows.cancel(conn, intent_id, f"by {actor.name}", now=at):
        check_cancel(_get(conn, intent_id))
    audit.add(conn, [_entry(actor, "intent.cancel", intent, at)])
    return _get(conn, intent_id)


def _settle(
    conn: Connection,
    site: str,
    intent_id: str,
    outcome: IntentOutcome,
    detail: str | None,
    answer: Mapping[str, object] | None,
    *,
    now: datetime | None,
) -> Intent:
    intent = rows.get(conn, intent_id)
    if intent is None or intent.site != site:
        raise NotFound("intent.unknown", "there is no such intent of this site")
    if takes_result(intent):
        settled = replace(intent, outcome=outcome, detail=detail, answer=answer)
        rows.settle(conn, settled, now=moment(conn, now))
    return _get(conn, intent_id)


def _get(conn: Connection, intent_id: str) -> Intent:
    found = rows.get(conn, intent_id)
    if found is None:
        raise NotFound("intent.unknown", "there is no such intent")
    return found


def _entry(actor: Actor, act: str, intent: Intent, at: datetime) -> AuditEntry:
    extra: dict[str, object] = {"intent_id": intent.intent_id}
    if intent.reason is not None:
        extra["reason"] = intent.reason
    if intent.arguments:
        extra["arguments"] = dict(intent.arguments)
    entry = record(actor, act, intent.message_id or intent.site, at, extra)
    return replace(entry, correlation_id=intent.message_id, source_site_id=intent.site)


def _command(intent: Intent) -> Command:
    arguments = dict(intent.arguments)
    if intent.message_id is not None:
        arguments["message_id"] = intent.message_id
    return Command(intent.intent_id, intent.kind.value, arguments, intent.actor)


_LOOKS: Mapping[IntentKind, frozenset[str]] = {
    IntentKind.LIST_PARKED: frozenset({"limit", "cursor"}),
    IntentKind.LIST_REJECTED: frozenset({"limit", "cursor"}),
    IntentKind.QUERY_EVENTS: frozenset(
        {"limit", "cursor", "from", "to", "kind", "severity", "category", "message_id", "target", "instance"}
    ),
}


def _check(kind: IntentKind, message_ids: Sequence[str], arguments: Mapping[str, str | int]) -> None:
    if kind.names_message:
        if not 1 <= len(message_ids) <= MESSAGES_MAX:
            raise InvalidInput("intent.messages", f"name 1 to {MESSAGES_MAX} of what it is about", field="message_ids")
        for message_id in message_ids:
            if not is_id(message_id):
                raise InvalidInput("intent.bad_id", "message_ids must be ids", field="message_ids")
    elif message_ids:
        raise InvalidInput("intent.messages", f"{kind.value} is about no single message", field="message_ids")
    for name, value in arguments.items():
        if name not in _LOOKS.get(kind, frozenset()):
            raise InvalidInput("intent.argument", f"{kind.value} has no argument {name[:64]!r}", field=name[:64])
        if isinstance(value, str):
            check_label(value, name)
    limit = arguments.get("limit", 1)
    if not isinstance(limit, int) or not 1 <= limit <= ROWS_MAX:
        raise InvalidInput("limit.range", f"limit must be from 1 to {ROWS_MAX}", field="limit")


def _outcome(text: str) -> IntentOutcome:
    try:
        return IntentOutcome(text)
    except ValueError:
        raise InvalidInput("intent.outcome", "outcome is no word that is known", field="outcome") from None


def _answer(given: Sequence[Mapping[str, Cell]], next_: str | None) -> dict[str, object]:
    """What a site answered, as much of it as is kept."""
    kept: list[dict[str, Cell]] = []
    size = 0
    for row in given[:ROWS_MAX]:
        plain = {truncate(name, 64): _cell(value) for name, value in list(row.items())[:CELLS_MAX]}
        size += sum(len(name) + len(str(value)) for name, value in plain.items())
        if size > ANSWER_BYTES_MAX:
            break
        kept.append(plain)
    answer: dict[str, Any] = {"rows": kept, "is_whole": len(kept) == len(given)}
    if next_ is not None:
        answer["next"] = truncate(next_, 256)
    return answer


def _cell(value: Cell) -> Cell:
    return truncate(value, ERROR_BYTES_MAX) if isinstance(value, str) else value


def _unknown_site(site: str) -> NotFound:
    return NotFound("site.unknown", f"there is no site {site[:64]!r}", hint="fieldpost sites list shows all")
