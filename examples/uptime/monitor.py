"""The monitor: checks all services, records the results, and repeats."""

import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from fieldpost.clock import Clock, SystemClock

from .checks import CertificateResult, HttpResult, check_certificate, check_http
from .config import Config, Service
from .database import MonitorDatabase
from .rules import MonitorEvent

CHECKS_AT_A_TIME = 16


class Monitor:
    """The monitor of one database."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self.database = MonitorDatabase(config.database)

    def close(self) -> None:
        self.database.close()

    def run(self, stopping: threading.Event) -> None:
        """Check until stopped. A failed write is reported; the next round checks again."""
        while not stopping.is_set():
            try:
                for event in self.sweep():
                    print(f"{event.event_type}: {event.payload['message']}", flush=True)
            except sqlite3.OperationalError as error:
                print(f"cannot write to {self._config.database}: {error}", file=sys.stderr, flush=True)
            stopping.wait(self._config.interval_s)

    def sweep(self) -> list[MonitorEvent]:
        """Check every service once; the events that were written. Checks run at the same time, writes in turn."""
        with ThreadPoolExecutor(CHECKS_AT_A_TIME) as pool:
            results = list(pool.map(self._check, self._config.services))
        events = []
        for service, (http, certificate) in zip(self._config.services, results, strict=True):
            now = self._clock.now()
            events.append(self.database.record_http(service, http, now))
            if certificate is not None:
                events.append(self.database.record_certificate(service, certificate, now))
        return [event for event in events if event is not None]

    def _check(self, service: Service) -> tuple[HttpResult, CertificateResult | None]:
        timeout_s = self._config.timeout_s
        http = check_http(service.url, timeout_s, service.ca_file)
        address = service.tls_address
        return http, check_certificate(*address, timeout_s) if address else None
