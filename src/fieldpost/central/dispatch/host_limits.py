"""Deliveries to one host, limited over all subscriptions of a node."""

from collections import Counter
from collections.abc import Sequence

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.core.delivery.routing import DeliveryPath


class HostLimits:
    """Counts the attempts in progress by host."""

    def __init__(self, host_max: int) -> None:
        self._host_max = host_max
        self._busy: Counter[str] = Counter()
        self.crowded: dict[str, str] = {}
        """Delivery keys that wait for their host, which has as many deliveries as it may have."""

    def take(self, running: RunningAttempt) -> bool:
        """Count the attempt, unless its host is at its limit. A probe always passes: there is one per subscription."""
        host = _host(running)
        if host is not None and self._busy[host] >= self._host_max and not running.is_probe:
            self.crowded[running.delivery_key] = host
            return False
        if host is not None:
            self._busy[host] += 1
        return True

    def give_back(self, ended: Sequence[RunningAttempt]) -> None:
        """These attempts, which were counted, have ended."""
        for running in ended:
            if (host := _host(running)) is not None:
                self._busy[host] -= 1
        self._busy = +self._busy
        if self.crowded:
            full = {host for host, count in self._busy.items() if count >= self._host_max}
            self.crowded = {key: host for key, host in self.crowded.items() if host in full}


def _host(running: RunningAttempt) -> str | None:
    return running.path.limits.host if isinstance(running.path, DeliveryPath) else None
