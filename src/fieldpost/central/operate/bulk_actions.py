"""Bulk actions: start, cancel, and carry out those of any node."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, not_found, present, record, require
from fieldpost.central.access.ownership import is_own_recovery
from fieldpost.central.operate.bulk_step import StepDone, step
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.search import bulk_actions
from fieldpost.central.store.search.bulk_actions import BulkRow
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, parked_only
from fieldpost.core.errors import Conflict, InvalidInput, Unavailable
from fieldpost.core.ids import is_id, new_id, parse_notification_id
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.text import check_label

SELECTION_MAX = 5000
INTERVAL_S = 2.0
"""How soon a node continues the bulk action of another node."""
FAULT_WAIT_S = 60.0
"""How long a bulk action waits after a step failed because of a bug."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Chosen:
    """One notification of a selection with the version that the user saw; without one, its version at the start."""

    notification_id: str
    version: int | None = None


class BulkActionRunner(Actions):
    """Starts and cancels bulk actions, and carries out those of any node."""

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
        """Start a bulk action on the parked notifications that match a filter, or on a selection.

        `as_of`, the time of a preview, leaves out notifications that parked later. A retry can go in stages. With an
        `action_id` chosen by the caller, a repeated call returns the action that the first one started.
        """
        require(actor, Role.OPERATOR, f"bulk.{verb.value}")
        check_label(reason, "reason")
        if in_stages and verb is not BulkVerb.RETRY:
            raise InvalidInput("bulk.stages", "only a retry can go in stages", field="in_stages")
        if action_id is not None and not is_id(action_id):
            raise InvalidInput("bulk.id", "action_id must be a UUID of 36 lower-case characters", field="action_id")
        wanted = parked_only(about).fields() if isinstance(about, Filter) else None
        now = self._clock.now()
        action = BulkAction(
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
        extra = {"reason": reason, **({"filter": wanted} if wanted is not None else {"selected": len(chosen)})}
        entry = record(actor, f"bulk.{verb.value}", action.action_id, now, extra)
        started = await self._store.write(_start, action, as_of, chosen, entry, now=self._store.now())
        self._store.wake.nudge(WakeTopic.BULK_ACTIONS)
        return started

    def new_action_id(self) -> str:
        """An id for an action to be started."""
        return new_id(self._clock.now(), secrets.token_bytes(10))

    async def cancel(self, actor: Actor, action_id: str) -> BulkAction:
        """Stop the action; the notifications it has changed stay changed."""
        require(actor, Role.OPERATOR, "bulk.cancel", Role.SUBSCRIBER)
        entry = record(actor, "bulk.cancel", action_id, self._clock.now())
        if not is_id(action_id):
            raise not_found("bulk", action_id, label="bulk action")
        return await self._store.write(_cancel, action_id, actor, entry, now=self._store.now())

    async def run(self) -> None:
        """Carry out bulk actions until cancelled."""
        while True:
            with logged("bulk"):
                await self.sweep()
            await self._store.wake.wait(INTERVAL_S, WakeTopic.BULK_ACTIONS)

    async def sweep(self) -> int:
        """Run steps until no action is due; returns how many notifications were changed."""
        count = 0
        while True:
            began = self._clock.monotonic()
            action_id = await self._store.read(bulk_actions.next_due, now=self._store.now())
            if action_id is None:
                return count
            done = await self._step(action_id)
            if done is None:
                return count  # another node is working on it and takes the next step, too
            count += done.changed
            # Ingest and delivery come first: pause for as long as the step took.
            await self._clock.sleep(self._clock.monotonic() - began)

    async def _step(self, action_id: str) -> StepDone | None:
        try:
            done = await self._store.write(step, action_id, now=self._store.now())
        except Unavailable:
            raise
        except Exception:
            # A bug affects this action; the others must not wait behind it.
            log.exception("bulk.faulted", action_id=action_id)
            await self._store.write(bulk_actions.postpone, action_id, FAULT_WAIT_S, now=self._store.now())
            return StepDone(None)
        if done is not None and done.action is not None:
            self._report(done.action, done.changed)
        return done

    def _report(self, action: BulkAction, changed: int) -> None:
        if changed and action.verb is BulkVerb.RETRY:
            self._store.wake.set()
        if action.status.has_ended:
            log.info(
                "bulk.ended",
                action_id=action.action_id,
                verb=action.verb.value,
                status=action.status.value,
                actor=action.actor,
                done=action.done,
                refused=action.refused,
            )


def _checked(chosen: Sequence[Chosen]) -> tuple[Chosen, ...]:
    if not 1 <= len(chosen) <= SELECTION_MAX:
        raise InvalidInput(
            "bulk.selection", f"a selection must hold 1 to {SELECTION_MAX} notifications", field="notifications"
        )
    once = {parse_notification_id(one.notification_id): one for one in chosen}
    return tuple(once.values())


def _start(
    conn: Connection,
    action: BulkAction,
    as_of: datetime | None,
    chosen: tuple[Chosen, ...],
    entry: AuditEntry,
    *,
    now: datetime | None,
) -> BulkAction:
    found = bulk_actions.get(conn, action.action_id)
    if found is not None:
        # The first call started it; its answer was lost, or the form was sent twice.
        same = ("actor", "verb", "reason", "wanted")
        if any(getattr(found, name) != getattr(action, name) for name in same):
            raise Conflict("bulk.other", "this id belongs to another bulk action", hint="start with a new id")
        return found
    at = database_time(conn, now)
    action = replace(action, created_at=at, as_of=min(as_of or at, at))
    selection: list[BulkRow] = []
    if chosen:
        present = rows.without_bodies(conn, [one.notification_id for one in chosen])
        for position, one in enumerate(chosen, 1):
            n = present.get(one.notification_id)
            version = one.version if one.version is not None else n.version if n else None
            error_key = fingerprint_key(n.last_error) if n and n.last_error else None
            selection.append(BulkRow(position, one.notification_id, version, error_key))
        action = replace(action, status=BulkStatus.RUNNING, total=len(selection))
    bulk_actions.add(conn, action, selection)
    audit.add(conn, [entry])
    return action


def _cancel(conn: Connection, action_id: str, actor: Actor, entry: AuditEntry, *, now: datetime | None) -> BulkAction:
    seen = bulk_actions.get(conn, action_id)
    if seen is None or not is_own_recovery(conn, seen, actor.owner_limit):
        raise not_found("bulk", action_id, label="bulk action")
    is_cancelled = bulk_actions.cancel(conn, action_id, f"cancelled by {actor.name}", database_time(conn, now))
    action = present(bulk_actions.get(conn, action_id), "bulk", action_id, label="bulk action")
    if is_cancelled:
        audit.add(conn, [entry])
    elif action.status is not BulkStatus.CANCELLED:
        raise Conflict("bulk.ended", f"the bulk action has already ended: it is {action.status.value}")
    return action
