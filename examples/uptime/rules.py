"""When a check becomes an event. Pure: the previous state and the time are arguments.

Every payload has the members `service`, `group` and `message`. Central reads the attributes `service` and `group` from
it, so routes and subscriptions can filter by them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .checks import HttpResult
from .config import Service

SERVICE_DOWN = "SERVICE_DOWN"
SERVICE_RECOVERED = "SERVICE_RECOVERED"
SSL_EXPIRING = "SSL_EXPIRING"

THRESHOLDS_DAYS = (30, 14, 7, 3)


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    event_type: str
    payload: dict[str, Any]


def uptime_event(
    service: Service, was_up: bool | None, down_since: datetime | None, result: HttpResult, now: datetime
) -> MonitorEvent | None:
    """The event of a change; None if the state is as before. `was_up` is None before the first check."""
    about = {"service": service.name, "group": service.group, "url": service.url}
    if not result.is_up and was_up is not False:
        message = f"{service.name} is down: {result.error}"
        return MonitorEvent(SERVICE_DOWN, about | {"message": message, "error": result.error, "since": time_text(now)})
    if result.is_up and was_up is False:
        since = down_since or now
        seconds = round((now - since).total_seconds())
        message = f"{service.name} is up again after {duration_text(seconds)}"
        return MonitorEvent(
            SERVICE_RECOVERED, about | {"message": message, "since": time_text(since), "downtime_s": seconds}
        )
    return None


def due_threshold(expires_at: datetime, notified: int | None, now: datetime) -> int | None:
    """The lowest threshold that the certificate has reached, unless it or a lower one was notified.

    A certificate that is first seen 6 days before its end has reached 30, 14 and 7 days at once; that is one event.
    """
    reached = [days for days in THRESHOLDS_DAYS if expires_at - now <= timedelta(days=days)]
    lowest = min(reached, default=None)
    return lowest if lowest is not None and (notified is None or lowest < notified) else None


def certificate_event(service: Service, expires_at: datetime, threshold: int, now: datetime) -> MonitorEvent:
    left = (expires_at - now).days
    day = expires_at.date().isoformat()
    when = f"expires in {left} {'day' if left == 1 else 'days'}, on {day}" if left >= 0 else f"expired on {day}"
    payload = {
        "service": service.name,
        "group": service.group,
        "url": service.url,
        "message": f"the certificate of {service.name} {when}",
        "expires_at": time_text(expires_at),
        "days_left": left,
        "threshold_days": threshold,
    }
    return MonitorEvent(SSL_EXPIRING, payload)


def time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def duration_text(seconds: int) -> str:
    """A duration for people: 45 s, 12 min, 3 h 5 min."""
    if seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
