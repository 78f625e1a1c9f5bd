"""Carrying the audit log away: for administrators, and audited itself."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fieldpost.central.access.audit_trail import record, require
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.search import audit_entries
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.search.audit_filter import AuditFilter

BATCH = 1000
"""So many entries are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Export:
    """Entries newest first, in sets, each read when it is asked for; none is younger than `as_of`."""

    as_of: datetime
    batches: AsyncIterator[Sequence[AuditEntry]]


class AuditExport:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def export(self, actor: Actor, wanted: AuditFilter) -> Export:
        """All entries that fit. That it was asked for is on record before the first of them leaves."""
        require(actor, Role.ADMIN, "audit.export")
        as_of = await self._store.read(database_time, self._store.now())
        entry = record(actor, "audit.export", "audit", self._clock.now(), {"filter": wanted.fields()})
        await self._store.write(audit.add, [entry])
        until = as_of if wanted.until is None else min(as_of, wanted.until)
        return Export(as_of, self._batches(replace(wanted, until=until)))

    async def _batches(self, wanted: AuditFilter) -> AsyncIterator[Sequence[AuditEntry]]:
        """Set by set, each in a transaction of its own: nobody waits for a slow reader."""
        before = None
        while True:
            found = await self._store.read(audit_entries.find, wanted, limit=BATCH, before=before)
            if found.entries:
                yield found.entries
            if found.end is None:
                return
            before = found.end
