"""Export of the audit log, for administrators; the export is audited too."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fieldpost.central.access.audit_trail import Actions
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.search import audit_entries
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.search.audit_filter import AuditFilter

BATCH = 1000
"""How many entries are in memory at once."""


@dataclass(frozen=True, slots=True)
class Export:
    """Entries up to `as_of`, the newest first, in batches that are read on demand."""

    as_of: datetime
    batches: AsyncIterator[Sequence[AuditEntry]]


class AuditExport(Actions):
    """Exports the audit log."""

    async def export(self, actor: Actor, wanted: AuditFilter) -> Export:
        """All matching entries. The export is audited before the first entry is read."""
        entry = self._begin(actor, Role.ADMIN, "audit.export", "audit", {"filter": wanted.fields()})
        as_of = await self._store.read(database_time, self._store.now())
        await self._store.write(audit.add, [entry])
        until = as_of if wanted.until is None else min(as_of, wanted.until)
        return Export(as_of, self._batches(replace(wanted, until=until)))

    async def _batches(self, wanted: AuditFilter) -> AsyncIterator[Sequence[AuditEntry]]:
        """Batch by batch, each in its own transaction, so that a slow reader blocks nobody."""
        before = None
        while True:
            found = await self._store.read(audit_entries.find, wanted, limit=BATCH, before=before)
            if found.entries:
                yield found.entries
            if found.end is None:
                return
            before = found.end
