"""Breakers: read, reset."""

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import commit, is_name, not_found, record, require
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import breakers as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.breaker import Breaker, reset


class Breakers:
    """Actions on breakers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def all(self) -> list[Breaker]:
        """The breakers that have ever counted a failure, by key."""
        found = await self._store.read(rows.load)
        return [found[key] for key in sorted(found)]

    async def reset(self, actor: Actor, key: str) -> Breaker:
        """Close the breaker and clear its failures; its held notifications are released in batches."""
        require(actor, Role.OPERATOR, "breaker.reset")
        if not is_name(key):
            raise not_found("breaker", key, hint="a breaker appears with its first failure")
        entry = record(actor, "breaker.reset", key, self._clock.now())
        after = await commit(self._store, f"breaker {key!r}", _reset, key, entry)
        self._store.wake.set()
        return after


def _reset(conn: Connection, key: str, entry: AuditEntry) -> Breaker:
    if key not in rows.load(conn, [key]):
        raise not_found("breaker", key, hint="a breaker appears with its first failure")
    after = rows.change(conn, key, reset)
    assert after is not None, "a reset always returns a breaker"
    audit.add(conn, [entry])
    return after
