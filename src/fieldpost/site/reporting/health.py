"""The site's health as central is told of it: what waits and since when, what needs a person, and how the agent fares.

A report is made when it is sent, so it is always the newest; one that could not be sent is not kept.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

import fieldpost
from fieldpost.clock import Clock
from fieldpost.core.times import from_microseconds, to_microseconds, to_text
from fieldpost.link.messages import Health
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.forwarding.forwarder import ForwardHealth

EVENTS_WITHIN = timedelta(hours=1)
EVENTS_MAX = 10_000
"""So many lines of the event log are counted at most."""

_BUFFERED = """
SELECT 'notification', count(*) FROM messages UNION ALL SELECT category, count(*) FROM calls GROUP BY category
"""
_PARKED = "SELECT category, count(*) FROM tracking WHERE terminal_at IS NULL AND status = 'parked' GROUP BY category"
_REJECTED = "SELECT count(*) FROM rejected"
_OLDEST_NOTIFICATION = "SELECT created_at FROM messages ORDER BY sequence LIMIT 1"
_OLDEST_CALL = "SELECT min(created_at) FROM tracking WHERE terminal_at IS NULL AND status = :status"
_EVENTS = "SELECT severity, occurred_at FROM events ORDER BY sequence DESC LIMIT :limit"


class HealthReport:
    """Makes the reports of one site's agent."""

    def __init__(self, buffer: Buffer, folder: Path, forwarding: Callable[[], ForwardHealth], clock: Clock) -> None:
        self._buffer = buffer
        self._folder = folder
        self._forwarding = forwarding
        self._clock = clock
        self._began = clock.monotonic()

    def make(self) -> Health:
        """How the site stands now; blocks on the buffer's file."""
        now = self._clock.now()
        found = self._buffer.read(lambda cursor: _look(cursor, now))
        forwarding = self._forwarding()
        since = forwarding.failing_since
        return Health(
            sent_at=to_text(now),
            version=fieldpost.__version__,
            backlog=found["backlog"],
            oldest_age_s=found["oldest_age_s"],
            parked=found["parked"],
            rejected=found["rejected"],
            disk_free_bytes=self._disk_free(),
            events=found["events"],
            is_forwarding=forwarding.is_ok,
            forward_error=forwarding.error,
            failing_for_s=None if since is None else _age_s(since, now),
            uptime_s=round(self._clock.monotonic() - self._began, 1),
        )

    def _disk_free(self) -> int | None:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return None


def _look(cursor: apsw.Cursor, now: datetime) -> dict[str, Any]:
    # Every statement is answered by an index, however full the buffer is.
    parked: Counter[str] = Counter(dict(_rows(cursor, _PARKED)))
    backlog = {category: count - parked[category] for category, count in _rows(cursor, _BUFFERED) if count}
    oldest = [row[0] for row in _rows(cursor, _OLDEST_NOTIFICATION)]
    for status in ("pending", "retrying"):
        oldest += [row[0] for row in _rows(cursor, _OLDEST_CALL, status=status) if row[0] is not None]
    since = to_microseconds(now - EVENTS_WITHIN)
    events: Counter[str] = Counter()
    for severity, occurred_at in cursor.execute(_EVENTS, {"limit": EVENTS_MAX}):
        if occurred_at < since:
            break
        events[severity] += 1
    return {
        "backlog": backlog,
        "oldest_age_s": _age_s(from_microseconds(min(oldest)), now) if oldest else 0.0,
        "parked": parked.total(),
        "rejected": _rows(cursor, _REJECTED)[0][0],
        "events": dict(events),
    }


def _rows(cursor: apsw.Cursor, statement: str, **parameters: object) -> list[Any]:
    return cursor.execute(statement, parameters).fetchall()


def _age_s(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())
