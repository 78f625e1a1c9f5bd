"""Refused logins and denied actions as audit entries.

They are rate-limited, so that nobody can fill the log: the first refusal of an actor, action and address is written at
once, later ones within a minute are counted and written with the next entry. A node writes at most ENTRIES_MAX per
minute.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from fieldpost.central.access.audit_trail import event_id
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.core.text import truncate

WINDOW = timedelta(minutes=1)
ENTRIES_MAX = 60
KEYS_MAX = 1_000
ANONYMOUS = "anonymous"

log = structlog.get_logger()


@dataclass(slots=True)
class _Refused:
    written_at: datetime
    repeated: int = 0


class Refusals:
    """Writes refusals to the audit log, for this node."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[tuple[str, str, str, str], _Refused] = OrderedDict()
        self._window_began = clock.now()
        self._written = 0

    async def note(
        self, error: Denied, action: str, actor: str | None = None, address: str = "", target: str | None = None
    ) -> None:
        """Record that this actor, or nobody known, was denied this action. A store that is down loses the entry."""
        key = (actor or ANONYMOUS, action, address, target or "")
        now = self._clock.now()
        repeated = self._admit(key, now)
        if repeated is None:
            return
        entry = AuditEntry(
            event_id=event_id(now),
            occurred_at=now,
            kind=AuditKind.INBOUND_AUTH_FAILURE,
            status=AuditStatus.FAILED,
            channel=AuditChannel.API_INBOUND,
            actor=key[0],
            target=target,
            error_message=error.message,
            request_summary=truncate(action, 256),
            extra={"code": error.code, "address": address, "repeated": repeated},
        )
        try:
            await self._store.write(audit.add, [entry])
        except Unavailable as failure:
            log.warning("refusal.not_audited", error=failure.message)

    def _admit(self, key: tuple[str, str, str, str], now: datetime) -> int | None:
        """How many refusals of this key were not written since its last entry; None if this one is not written."""
        if now - self._window_began >= WINDOW:
            self._window_began, self._written = now, 0
        known = self._known.get(key)
        is_recent = known is not None and now - known.written_at < WINDOW
        if is_recent or self._written >= ENTRIES_MAX:
            if known is not None:
                known.repeated += 1
            return None
        self._written += 1
        self._known[key] = _Refused(now)
        self._known.move_to_end(key)
        while len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)
        return known.repeated if known else 0
