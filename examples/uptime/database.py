"""The monitor's database. Each check is one transaction: the log row, and the event if there is one.

The previous state is read inside the transaction, from the log rows themselves. So the event exists exactly if its log
row does, a restart continues where the last process stopped, and two monitors on one file report an outage once.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from fieldpost.outbox import Outbox

from .checks import CertificateResult, HttpResult
from .config import Service
from .rules import MonitorEvent, certificate_event, due_threshold, time_text, uptime_event

BUSY_S = 30.0

_TABLES = (
    """create table if not exists uptime_logs (
        uptime_log_id integer primary key,
        service text not null,
        group_name text not null,
        checked_at text not null,
        is_up integer not null,
        status_code integer,
        response_ms integer,
        error text,
        event_outbox_id text
    )""",
    "create index if not exists ix_uptime_logs_service on uptime_logs (service, is_up, uptime_log_id)",
    """create table if not exists ssl_logs (
        ssl_log_id integer primary key,
        service text not null,
        group_name text not null,
        checked_at text not null,
        expires_at text,
        days_left integer,
        threshold_days integer,
        error text,
        event_outbox_id text
    )""",
    "create index if not exists ix_ssl_logs_service on ssl_logs (service, expires_at, threshold_days)",
)


class MonitorDatabase:
    """One connection to the SQLite file."""

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file, timeout=BUSY_S)
        with self._transaction():
            for statement in _TABLES:
                self.connection.execute(statement)
            Outbox.create_tables(self.connection)

    def close(self) -> None:
        self.connection.close()

    def record_http(self, service: Service, result: HttpResult, now: datetime) -> MonitorEvent | None:
        """Write the log row, and the event if the service went down or recovered."""
        with self._transaction():
            was_up, down_since = self._state(service.name)
            event = uptime_event(service, was_up, down_since, result, now)
            self.connection.execute(
                "insert into uptime_logs"
                " (service, group_name, checked_at, is_up, status_code, response_ms, error, event_outbox_id)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(service.name, service.group, time_text(now)),
                    *(int(result.is_up), result.status_code, result.response_ms, result.error),
                    self._add(service, event),
                ),
            )
        return event

    def record_certificate(self, service: Service, result: CertificateResult, now: datetime) -> MonitorEvent | None:
        """Write the log row, and the event if the certificate has reached another threshold."""
        expires_at = result.expires_at
        with self._transaction():
            threshold = event = None
            if expires_at is not None:
                # A renewed certificate has another end, and its own thresholds.
                [(notified,)] = self.connection.execute(
                    "select min(threshold_days) from ssl_logs where service = ? and expires_at = ?",
                    (service.name, time_text(expires_at)),
                )
                threshold = due_threshold(expires_at, notified, now)
                event = certificate_event(service, expires_at, threshold, now) if threshold is not None else None
            self.connection.execute(
                "insert into ssl_logs"
                " (service, group_name, checked_at, expires_at, days_left, threshold_days, error, event_outbox_id)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(service.name, service.group, time_text(now)),
                    time_text(expires_at) if expires_at else None,
                    (expires_at - now).days if expires_at else None,
                    *(threshold, result.error),
                    self._add(service, event),
                ),
            )
        return event

    def _add(self, service: Service, event: MonitorEvent | None) -> str | None:
        """The id of the event, now in the open transaction."""
        if event is None:
            return None
        # One key per service: its recovery is not published before its outage.
        return Outbox.add(
            self.connection, event.event_type, event.payload, resource=service.url, order_key=service.name
        )

    def _state(self, service: str) -> tuple[bool | None, datetime | None]:
        """Whether the service was up at the last check, and since when it is down."""
        [(last_up, last_down)] = self.connection.execute(
            "select (select max(uptime_log_id) from uptime_logs where service = :service and is_up = 1),"
            " (select max(uptime_log_id) from uptime_logs where service = :service and is_up = 0)",
            {"service": service},
        )
        if last_up is None and last_down is None:
            return None, None
        if last_down is None or (last_up or 0) > last_down:
            return True, None
        [(since,)] = self.connection.execute(
            "select checked_at from uptime_logs where service = ? and is_up = 0 and uptime_log_id > ?"
            " order by uptime_log_id limit 1",
            (service, last_up or 0),
        )
        return False, datetime.fromisoformat(since)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("begin immediate")
        with self.connection:
            yield
