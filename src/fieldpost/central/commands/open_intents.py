"""Open intents on their way to the sites: which to send, and what the sites answered. See `core.sites.intent`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import epochs
from fieldpost.central.store.sites import intents as rows
from fieldpost.central.store.sites.epochs import PairLeader
from fieldpost.core.errors import NotFound, parse_choice
from fieldpost.core.sites.intent import Intent, IntentOutcome, takes_result
from fieldpost.core.text import ERROR_BYTES_MAX, truncate
from fieldpost.link.messages import Command, CommandCell, CommandResult

log = structlog.get_logger()

ROWS_MAX = 500
"""How many rows of a site's answer are kept."""
ANSWER_BYTES_MAX = 256 * 1024
"""How much of a site's answer is kept."""
CELLS_MAX = 32


class OpenIntents:
    """The intents that no site has answered yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def expire(self) -> None:
        """End the intents that have waited too long for their site."""
        if expired := await self._store.write(rows.expire, now=self._store.now()):
            log.warning("intents.expired", ids=expired[:10], count=len(expired))

    async def counts(self, sites: Sequence[str]) -> tuple[dict[str, int], dict[str, PairLeader]]:
        """How many intents are open, by site, and the leaders of those of these sites that are pairs."""
        return await self._store.read(_counts, sites)

    async def of(self, sites: Sequence[str], limit: int) -> list[Intent]:
        """The open intents of these sites, the oldest first."""
        return await self._store.read(rows.open_of, sites, limit) if sites else []

    async def to_send(self, intents: Sequence[Intent]) -> list[Command]:
        """Mark these intents as sent and return their commands, without those cancelled in the meantime.

        The mark is written before the command is sent: a crash between the two only sends the command again.
        """
        uncancelled = await self._store.write(rows.sent, [i.intent_id for i in intents], now=self._store.now())
        return [_command(intent) for intent in intents if intent.intent_id in uncancelled]

    async def settle(self, site: str, result: CommandResult) -> Intent:
        """Record a site's answer; an intent that has its outcome keeps it.

        Raises NotFound for an intent of another site, InvalidInput for an unknown outcome.
        """
        outcome = parse_choice(IntentOutcome, result.outcome, "intent.outcome", "outcome")
        detail = None if result.detail is None else truncate(result.detail)
        answer = None if result.rows is None else _answer(result.rows, result.next)
        settled = await self._store.write(
            _settle, site, result.intent_id, outcome, detail, answer, now=self._store.now()
        )
        log.info("intent.done", intent_id=result.intent_id, site=site, kind=settled.kind.value, outcome=outcome.value)
        return settled


def _counts(conn: Connection, sites: Sequence[str]) -> tuple[dict[str, int], dict[str, PairLeader]]:
    return rows.open_counts(conn), epochs.leaders(conn, sites)


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
        raise NotFound("intent.unknown", "this site has no such intent")
    if not takes_result(intent):
        return intent
    rows.settle(conn, replace(intent, outcome=outcome, detail=detail, answer=answer), now=database_time(conn, now))
    return rows.get(conn, intent_id) or intent


def _command(intent: Intent) -> Command:
    arguments = dict(intent.arguments)
    if intent.message_id is not None:
        arguments["message_id"] = intent.message_id
    return Command(intent.intent_id, intent.kind.value, arguments, intent.actor)


def _answer(given: Sequence[Mapping[str, CommandCell]], next_: str | None) -> dict[str, object]:
    """The part of a site's answer that fits."""
    kept: list[dict[str, CommandCell]] = []
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


def _cell(value: CommandCell) -> CommandCell:
    return truncate(value, ERROR_BYTES_MAX) if isinstance(value, str) else value
