"""Breakers: read, reset."""

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, check_name, commit, not_found, record, require
from fieldpost.central.access.ownership import is_reachable
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import breakers as rows
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.breaker import Breaker, reset

UNKNOWN_HINT = "a breaker appears with its first failure"


class Breakers(Actions):
    """Actions on breakers."""

    async def all(self) -> list[Breaker]:
        """The breakers of channels and lists that have ever counted a failure, by key."""
        found = await self._store.read(rows.of_channels_and_lists)
        return [found[key] for key in sorted(found)]

    async def reset(self, actor: Actor, key: str) -> Breaker:
        """Close the breaker and clear its failures; its held notifications are released in batches."""
        require(actor, Role.OPERATOR, "breaker.reset", Role.SUBSCRIBER)
        entry = record(actor, "breaker.reset", key, self._clock.now())
        check_name("breaker", key, UNKNOWN_HINT)
        after = await commit(self._store, f"breaker {key!r}", _reset, key, actor.owner_limit, entry)
        self._store.wake.set()
        return after


def _reset(conn: Connection, key: str, owner: str | None, entry: AuditEntry) -> Breaker:
    if not is_reachable(conn, key, owner) or key not in rows.load(conn, [key]):
        raise not_found("breaker", key, UNKNOWN_HINT)
    after = rows.change(conn, key, reset)
    assert after is not None, "a reset always returns a breaker"
    audit.add(conn, [entry])
    return after
