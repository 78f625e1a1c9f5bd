"""What every act of a person has in common: it needs a role, it leaves an audit entry, it may come too late."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import ParamSpec, TypeVar

import structlog
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.engine.store import Store, Transaction
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import Conflict, Denied
from fieldpost.core.ids import new_id
from fieldpost.core.text import is_label

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger()


class Keep(Enum):
    """What a change says of that which it leaves alone; None may be a value."""

    KEEP = "keep"


KEEP = Keep.KEEP


def require(actor: Actor, role: Role, act: str) -> None:
    """Raise Denied unless the actor may do this act (named noun.verb); a refusal is logged."""
    try:
        actor.require(role)
    except Denied:
        log.warning("act.denied", act=act, actor=actor.name, role=actor.role.value, needed=role.value)
        raise


def record(actor: Actor, act: str, target: str, now: datetime, extra: Mapping[str, object] | None = None) -> AuditEntry:
    """The audit entry of an act that is done in the same transaction. `extra` must hold no secret.

    It names the person, and the API token where a program acted in his name.
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
        request_summary=act,
        extra=noted or None,
    )


is_name = is_label
"""Whether anything can bear this name: an act on what cannot is about nothing that there is."""


def event_id(now: datetime) -> str:
    return new_id(now, secrets.token_bytes(10))


async def commit(store: Store, what: str, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the act's transaction; two that collide in the database end as a Conflict for one of them."""
    try:
        return await store.write(function, *args, **kwargs)
    except IntegrityError:
        raise Conflict(
            "act.collided", f"{what} was changed by somebody else at the same time", hint="look again, then try again"
        ) from None
