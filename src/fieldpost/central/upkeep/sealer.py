"""The sealer: seals committed audit entries in signed batches, on the leader (`core.audit_seal`).

Writers of audit entries do nothing for it. Two leaders at once cannot fork the chain: a batch is stored only if its
number is free, and the second leader reads again. The head of a batch goes to the log and to a file only after the
batch is stored, so no file names a batch that the database never had.
"""

import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit_seals
from fieldpost.central.store.notifications.audit_seals import StoredBatch, Unsealed
from fieldpost.central.upkeep.leader import Leader
from fieldpost.clock import Clock
from fieldpost.core.audit_seal import FIRST_PREVIOUS, SealBatch, numbers_in
from fieldpost.core.errors import Conflict
from fieldpost.core.times import to_text

SEAL_INTERVAL_S = 10.0
HEADS_FILE = "audit-heads"

log = structlog.get_logger()


class Sealer:
    """The sealer of one node; it works while the node leads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        leader: Leader,
        keyring: Keyring,
        retention: timedelta,
        heads_file: Path | None = None,
    ) -> None:
        """`retention` is that of audit entries: a seal allows no younger one to be missing."""
        self._store = store
        self._clock = clock
        self._leader = leader
        self._keyring = keyring
        self._retention = retention
        self._heads_file = heads_file

    async def run(self) -> None:
        """Seal at every interval while this node leads, until cancelled."""
        while True:
            await self._leader.elected()
            with logged("audit.seal", "error"):
                await self.sweep()
            await self._clock.sleep(SEAL_INTERVAL_S)

    async def sweep(self) -> int:
        """Seal all entries that are committed by now; returns their number."""
        sealed = 0
        while True:
            count, is_more = await self._seal()
            sealed += count
            if not is_more:
                return sealed

    async def _seal(self) -> tuple[int, bool]:
        """Seal one batch; returns its size, and whether more entries wait."""
        found = await self._store.read(audit_seals.unsealed, now=self._store.now())
        purged_to = self._purged_to(found)
        if not found.entries and (found.last is None or found.last.batch.purged_to == purged_to):
            return 0, False
        try:
            key = self._keyring.require_key()
        except Conflict as error:
            log.error("audit.not_sealed", error=error.message)
            return 0, False
        numbers = numbers_in(found.entries)
        batch = SealBatch(
            number=found.last.batch.number + 1 if found.last else 1,
            sealed_at=found.now,
            previous=found.last.head if found.last else FIRST_PREVIOUS,
            purged_to=purged_to,
            entries=found.entries,
            public_key=key.public_key,
        )
        made = StoredBatch(batch, batch.head, key.signer.sign(batch.head), found.high, found.gaps)
        low = numbers[0] if numbers else found.high
        if not await self._store.write(audit_seals.add_batch, made, len(numbers), low):
            # Another leader was first: read the remaining entries again.
            return 0, self._leader.is_leader
        await asyncio.to_thread(self._announce, batch)
        log.info("audit.sealed", batch=batch.number, entries=len(numbers), head=batch.head.hex())
        return len(numbers), found.is_more and self._leader.is_leader

    def _purged_to(self, found: Unsealed) -> datetime | None:
        """The time before which entries may be missing: the progress of the purge, never past the retention."""
        before = found.last.batch.purged_to if found.last else None
        if found.purged_to is None:
            return before
        allowed = min(found.purged_to, found.now - self._retention)
        return allowed if before is None else max(before, allowed)

    def _announce(self, batch: SealBatch) -> None:
        """Append the head to the heads file, durably. A file that cannot be written stops no sealing."""
        if self._heads_file is None:
            return
        line = f"{batch.number} {batch.head.hex()} {to_text(batch.sealed_at)}\n"
        try:
            descriptor = os.open(self._heads_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.error("audit.heads_file", file=str(self._heads_file), error=error.strerror)
