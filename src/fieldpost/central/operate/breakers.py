"""Breakers: read, reset."""

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, check_name, commit, not_found
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import breakers as rows
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.breaker import Breaker, reset

UNKNOWN_HINT = "a breaker appears with its first failure"


class Breakers(Actions):
    """Actions on breakers."""

    async def all(self) -> list[Breaker]:
        """The breakers that have ever counted a failure, by key."""
        found = await self._store.read(rows.load)
        return [found[key] for key in sorted(found)]

    async def reset(self, actor: Actor, key: str) -> Breaker:
        """Close the breaker and clear its failures; its held notifications are released in batches."""
        entry = self._begin(actor, Role.OPERATOR, "breaker.reset", key)
        check_name("breaker", key, UNKNOWN_HINT)
        after = await commit(self._store, f"breaker {key!r}", _reset, key, entry)
        self._store.wake.set()
        return after


def _reset(conn: Connection, key: str, entry: AuditEntry) -> Breaker:
    if key not in rows.load(conn, [key]):
        raise not_found("breaker", key, UNKNOWN_HINT)
    after = rows.change(conn, key, reset)
    assert after is not None, "a reset always returns a breaker"
    audit.add(conn, [entry])
    return after
