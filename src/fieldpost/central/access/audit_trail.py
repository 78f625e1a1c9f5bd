"""The parts that all actions of people share: a required role, an audit entry, errors for stale or missing subjects."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import ParamSpec, TypeVar

import structlog
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.engine.store import Store, Transaction
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import Conflict, Denied, NotFound
from fieldpost.core.ids import new_id
from fieldpost.core.text import is_label

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger()


class Keep(Enum):
    """Marks a property that a change leaves as it is, where None is a value."""

    KEEP = "keep"


KEEP = Keep.KEEP


class Actions:
    """Base of the actions of people on one noun."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def _begin(
        self, actor: Actor, role: Role, action: str, target: str, extra: Mapping[str, object] | None = None
    ) -> AuditEntry:
        """The audit entry of an action, to be written in its transaction. Raises Denied without the role."""
        require(actor, role, action)
        return record(actor, action, target, self._clock.now(), extra)


def require(actor: Actor, role: Role, action: str, *others: Role) -> None:
    """Raise Denied, and log it, unless the actor has the role, or one of the others, for this action (noun.verb)."""
    try:
        actor.require(role, *others)
    except Denied:
        log.warning("action.denied", action=action, actor=actor.name, role=actor.role.value, needed=role.value)
        raise


def record(
    actor: Actor, action: str, target: str, now: datetime, extra: Mapping[str, object] | None = None
) -> AuditEntry:
    """The audit entry of an action, to be written in the same transaction. `extra` must not contain secrets.

    It names the user, and the API token if a program acted for them.
    """
    noted = {**(extra or {}), **({"by_token": actor.token} if actor.token else {})}
    return AuditEntry(
        event_id=event_id(now),
        occurred_at=now,
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        channel=AuditChannel.API_INBOUND,
        actor=actor.name,
        target=target,
        request_summary=action,
        extra=noted or None,
    )


def event_id(now: datetime) -> str:
    return new_id(now, secrets.token_bytes(10))


async def commit(store: Store, subject: str, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the transaction of an action; if two collide in the database, one of them raises Conflict."""
    try:
        return await store.write(function, *args, **kwargs)
    except IntegrityError:
        raise Conflict(
            "action.collided", f"somebody else changed {subject} at the same time", hint="reload it and try again"
        ) from None


def not_found(noun: str, name: str, hint: str | None = None, *, label: str = "") -> NotFound:
    """The error for a subject that does not exist; its code is `noun.unknown`, its text names the noun or label."""
    return NotFound(f"{noun}.unknown", f"{label or noun} {name[:64]!r} does not exist", hint=hint)


def check_name(noun: str, name: str, hint: str | None = None) -> None:
    """Raise NotFound, as for an unknown subject, if this text cannot be a name."""
    if not is_label(name):
        raise not_found(noun, name, hint)


def present(found: T | None, noun: str, name: str, hint: str | None = None, *, label: str = "") -> T:
    """The subject that was found; raises NotFound if it is None."""
    if found is None:
        raise not_found(noun, name, hint, label=label)
    return found


def was_changed(noun: str, name: str, version: int) -> Conflict:
    """The error for a subject that is not at the version the caller saw; its code is `noun.changed`."""
    return Conflict(
        f"{noun}.changed",
        f"{noun} {name!r} was changed by someone else and is now at version {version}",
        hint="reload it and repeat the change",
    )
