"""Bulk actions: start, cancel, and carry out, whichever node they were started on."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import not_found, record, require
from fieldpost.central.operate.bulk_step import Turned, turn
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import LocalWake
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.search import bulk_actions
from fieldpost.central.store.search.bulk_actions import ActRow
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, parked_only
from fieldpost.core.errors import Conflict, InvalidInput, Unavailable
from fieldpost.core.ids import is_id, new_id, parse_notification_id
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.text import check_label

SELECTION_MAX = 5000
LOOK_EVERY_S = 2.0
"""How soon a node goes on with what another has left."""
FAULT_WAIT_S = 60.0
"""How long an act waits whose turn failed by a bug."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Chosen:
    """One notification of a selection, and the version that was seen; without one, as it is when the act starts."""

    notification_id: str
    version: int | None = None


class BulkActionRunner:
    """One for a node: what people start on it, and its share in carrying out whatever was started anywhere."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._wake = LocalWake()

    async def start(
        self,
        actor: Actor,
        verb: BulkVerb,
        about: Filter | Sequence[Chosen],
        reason: str,
        *,
        as_of: datetime | None = None,
        in_stages: bool = False,
        action_id: str | None = None,
    ) -> BulkAction:
        """Begin an act on what is parked and fits the filter, or on a selection; it is carried out from here on.

        `as_of` leaves out what parked after that moment, as when one previewed the act. A retry may go in stages. With
        an `action_id` of the caller's own, asking again begins nothing, and gives the act that was begun.
        """
        require(actor, Role.OPERATOR, f"bulk.{verb.value}")
        check_label(reason, "reason")
        if in_stages and verb is not BulkVerb.RETRY:
            raise InvalidInput("bulk.stages", "only a retry can go in stages", field="in_stages")
        if action_id is not None and not is_id(action_id):
            raise InvalidInput("bulk.id", "action_id must be a UUID of 36 lower-case characters", field="action_id")
        wanted = parked_only(about).fields() if isinstance(about, Filter) else None
        now = self._clock.now()
        act = BulkAction(
            action_id=action_id or self.new_action_id(),
            verb=verb,
            actor=actor.name,
            reason=reason,
            wanted=wanted,
            as_of=as_of or now,
            in_stages=in_stages,
            created_at=now,
        )
        chosen = () if isinstance(about, Filter) else _checked(about)
        said = {"reason": reason, **({"filter": wanted} if wanted is not None else {"selected": len(chosen)})}
        entry = record(actor, f"bulk.{verb.value}", act.action_id, now, said)
        started = await self._store.write(_start, act, as_of, chosen, entry, now=self._store.now())
        self._wake.set()
        return started

    def new_action_id(self) -> str:
        """For an act that is yet to be begun."""
        return new_id(self._clock.now(), secrets.token_bytes(10))

    async def cancel(self, actor: Actor, action_id: str) -> BulkAction:
        """End it where it stands; what was done stays done."""
        require(actor, Role.OPERATOR, "bulk.cancel")
        if not is_id(action_id):
            raise not_found("bulk", action_id, label="bulk action")
        entry = record(actor, "bulk.cancel", action_id, self._clock.now())
        return await self._store.write(_cancel, action_id, actor.name, entry, now=self._store.now())

    async def run(self) -> None:
        """Carry out what is there to carry out, until cancelled."""
        while True:
            await self._sweep_safely()
            await self._wake.wait(LOOK_EVERY_S)

    async def sweep(self) -> int:
        """Turn after turn until no act is due; how many notifications were changed."""
        count = 0
        while True:
            began = self._clock.monotonic()
            action_id = await self._store.read(bulk_actions.next_due, now=self._store.now())
            if action_id is None:
                return count
            turned = await self._turn(action_id)
            if turned is None:
                return count  # another node is at it, and takes the next one too
            count += turned.changed
            # Ingest and delivery come first: it rests for as long as it took.
            await self._clock.sleep(self._clock.monotonic() - began)

    async def _turn(self, action_id: str) -> Turned | None:
        try:
            turned = await self._store.write(turn, action_id, now=self._store.now())
        except Unavailable:
            raise
        except Exception:
            # A bug concerns this act; the others must not wait behind it for ever.
            log.exception("bulk.faulted", action_id=action_id)
            await self._store.write(bulk_actions.postpone, action_id, FAULT_WAIT_S, now=self._store.now())
            return Turned(None)
        if turned is not None and turned.act is not None:
            self._tell(turned.act, turned.changed)
        return turned

    def _tell(self, act: BulkAction, changed: int) -> None:
        if changed and act.verb is BulkVerb.RETRY:
            self._store.wake.set()
        if act.status.has_ended:
            log.info(
                "bulk.ended",
                action_id=act.action_id,
                verb=act.verb.value,
                status=act.status.value,
                actor=act.actor,
                done=act.done,
                refused=act.refused,
            )

    async def _sweep_safely(self) -> None:
        try:
            await self.sweep()
        except Unavailable as error:
            log.warning("bulk.failed", error=error.message)
        except Exception:
            log.exception("bulk.faulted")


def _checked(chosen: Sequence[Chosen]) -> tuple[Chosen, ...]:
    if not 1 <= len(chosen) <= SELECTION_MAX:
        raise InvalidInput(
            "bulk.selection", f"a selection must hold 1 to {SELECTION_MAX} notifications", field="notifications"
        )
    once = {parse_notification_id(one.notification_id): one for one in chosen}
    return tuple(once.values())


def _start(
    conn: Connection,
    act: BulkAction,
    as_of: datetime | None,
    chosen: tuple[Chosen, ...],
    entry: AuditEntry,
    *,
    now: datetime | None,
) -> BulkAction:
    found = bulk_actions.get(conn, act.action_id)
    if found is not None:
        # It was begun before, and only the answer was lost, or the form was sent twice.
        if (found.actor, found.verb, found.reason, found.wanted) != (act.actor, act.verb, act.reason, act.wanted):
            raise Conflict("bulk.other", "another act was begun under this id", hint="look at it, or begin anew")
        return found
    at = database_time(conn, now)
    act = replace(act, created_at=at, as_of=min(as_of or at, at))
    selection: list[ActRow] = []
    if chosen:
        there = rows.without_bodies(conn, [one.notification_id for one in chosen])
        for position, one in enumerate(chosen, 1):
            n = there.get(one.notification_id)
            version = one.version if one.version is not None else n.version if n else None
            error_key = fingerprint_key(n.last_error) if n and n.last_error else None
            selection.append(ActRow(position, one.notification_id, version, error_key))
        act = replace(act, status=BulkStatus.RUNNING, total=len(selection))
    bulk_actions.add(conn, act, selection)
    audit.add(conn, [entry])
    return act


def _cancel(conn: Connection, action_id: str, by: str, entry: AuditEntry, *, now: datetime | None) -> BulkAction:
    did = bulk_actions.cancel(conn, action_id, f"cancelled by {by}", database_time(conn, now))
    act = bulk_actions.get(conn, action_id)
    if act is None:
        raise not_found("bulk", action_id, label="bulk action")
    if did:
        audit.add(conn, [entry])
    elif act.status is not BulkStatus.CANCELLED:
        raise Conflict("bulk.ended", f"the act has ended already: it is {act.status.value}")
    return act
