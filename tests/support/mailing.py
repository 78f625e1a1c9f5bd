"""Envelopes for the email adapter, and what central makes of its outcomes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.lifecycle import Hold, Policy, Transition, decide
from fieldpost.core.delivery.outcome import Outcome
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Notification, Provenance, Status, Target, TargetStatus
from fieldpost.testing import MailServer

ID = NotificationId("0198c8a0-0000-7000-8000-000000000001")
SENDER = "alerts@plant.example"
DATED = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
POLICY = Policy(Fixed(timedelta(minutes=1), attempts_max=10))


def envelope(
    server: MailServer | None, *targets: str, settings: dict[str, Any] | None = None, **changes: Any
) -> Envelope:
    """To these targets over this server, in clear."""
    full: dict[str, Any] = {
        "host": server.host if server else "127.0.0.1",
        "port": server.port if server else 25,
        "tls": "none",
        "from_address": SENDER,
        "connect_timeout_s": 30,
        "command_timeout_s": 30,
        "data_timeout_s": 30,
    }
    return replace(
        Envelope(
            notification_id=ID,
            list_name="operators",
            subject="Pump 3 is hot",
            body="It has 93 °C.\n",
            targets=targets or ("ops@plant.example",),
            settings=full | (settings or {}),
            dated=DATED,
            gate=lambda: None,
        ),
        **changes,
    )


def notification(*targets: str) -> Notification:
    return Notification(
        notification_id=ID,
        type="email",
        list_name="operators",
        subject="Pump 3 is hot",
        body="It has 93 °C.\n",
        provenance=Provenance("plant"),
        status=Status.PENDING,
        delivery_key="list:operators",
        created_at=DATED,
        due_at=DATED,
        cycle_started_at=DATED,
        targets=tuple(map(Target, targets or ("ops@plant.example",))),
    )


def decided(n: Notification, outcome: Outcome) -> Transition:
    """What central decides after an attempt that came to this."""
    return decide(n, outcome, POLICY, Hold("channel:mail", DATED + timedelta(minutes=5)), DATED, 0.5)


def after(n: Notification, outcome: Outcome) -> Notification:
    """The notification as it stands after such an attempt."""
    transition = decided(n, outcome)
    changed = {target.address: target for target in transition.targets}
    return replace(
        n,
        status=transition.status,
        retry_count=transition.retry_count,
        last_error=transition.last_error,
        next_attempt_at=transition.next_attempt_at,
        held_by=transition.held_by,
        targets=tuple(changed.get(target.address, target) for target in n.targets),
    )


def due(n: Notification) -> tuple[str, ...]:
    """Those to whom the next attempt goes."""
    return tuple(target.address for target in n.targets if target.status is TargetStatus.DUE)
