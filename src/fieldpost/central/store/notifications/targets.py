"""Targets of notifications: read them, and write their status."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications import receipts
from fieldpost.central.store.schema import rows as to_core
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.notification import Target, TargetStatus

_targets = Statement(
    """
    select notification_id, address, status, error, truncated_to, provider_id, settled_at from targets
    where notification_id {any:ids} order by notification_id, address
    """,
    lists={"ids": "id"},
    result={
        "notification_id": Id,
        "address": Text,
        "status": Text,
        "error": Text,
        "truncated_to": Integer,
        "provider_id": Text,
        "settled_at": Moment,
    },
)

_TARGETS: Mapping[str, ParameterKind] = {
    "notification_id": "id",
    "address": "text",
    "status": "text",
    "error": "text",
    "truncated_to": "int",
    "provider_id": "text",
    "settled_at": "moment",
}
_settle = Statement(
    """
    update targets set status = u.status, error = u.error, truncated_to = u.truncated_to,
        provider_id = u.provider_id, settled_at = u.settled_at
    from {rows} where targets.notification_id = u.notification_id and targets.address = u.address
    """,
    rows=_TARGETS,
)


def settle_targets(conn: Connection, changes: Iterable[tuple[str, Transition, datetime]]) -> None:
    """Write the targets that these transitions change, each with the time of its transition."""
    write_targets(conn, [(i, target, at) for i, transition, at in changes for target in transition.targets])


def write_targets(conn: Connection, targets: Collection[tuple[str, Target, datetime]]) -> None:
    """Write targets of these notifications, each with the time of its change."""
    rows = [(i, t.address, t.status.value, t.error, t.truncated_to, t.provider_id, at) for i, t, at in targets]
    if rows:
        _settle.run(conn, rows)
    accepted = [(i, t.address, t.provider_id, at) for i, t, at in targets if t.status is TargetStatus.ACCEPTED]
    if accepted:
        receipts.accept(conn, accepted)


def targets_of(conn: Connection, ids: Collection[str]) -> dict[str, list[Target]]:
    """The targets of these notifications, ordered by address."""
    targets: dict[str, list[Target]] = {}
    for row in _targets.run(conn, ids=list(ids)) if ids else []:
        targets.setdefault(row.notification_id, []).append(to_core.target(row))
    return targets
