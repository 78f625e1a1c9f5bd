"""Health reports to central: backlog, age of the oldest message, parked and rejected messages, state of the agent.

A report is made when it is sent, so it is always current; a report that could not be sent is dropped.
"""

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import fieldpost
from fieldpost.clock import Clock
from fieldpost.core.times import to_text
from fieldpost.link.messages import Health, PairHealth
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.figures import health_figures
from fieldpost.site.forwarding.forwarder import ForwardHealth


class HealthReport:
    """Makes the health reports of one agent."""

    def __init__(
        self,
        buffer: Buffer,
        folder: Path,
        forwarding: Callable[[], ForwardHealth],
        clock: Clock,
        pair: Callable[[], PairHealth | None] = lambda: None,
    ) -> None:
        self._pair = pair
        self._buffer = buffer
        self._folder = folder
        self._forwarding = forwarding
        self._clock = clock
        self._began = clock.monotonic()

    def make(self, *, is_stopping: bool = False) -> Health:
        """The report as of now; blocks on the buffer's file."""
        now = self._clock.now()
        figures = self._buffer.read(health_figures, now)
        forwarding = self._forwarding()
        since, oldest = forwarding.failing_since, figures.oldest_created_at
        return Health(
            sent_at=to_text(now),
            version=fieldpost.__version__,
            backlog=figures.backlog,
            oldest_age_s=0.0 if oldest is None else _age_s(oldest, now),
            parked=figures.parked,
            rejected=figures.rejected,
            disk_free_bytes=self._disk_free(),
            events=figures.events,
            is_forwarding=forwarding.is_ok,
            forward_error=forwarding.error,
            failing_for_s=None if since is None else _age_s(since, now),
            uptime_s=round(self._clock.monotonic() - self._began, 1),
            is_stopping=is_stopping,
            pair=self._pair(),
        )

    def _disk_free(self) -> int | None:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return None


def _age_s(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())
