"""Receiving webhooks in an application: `from fieldpost import verify_webhook`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fieldpost.clock import SystemClock
from fieldpost.core.events.signature import TOLERANCE_S, VerifiedWebhook, check_signing_secret, verify


def verify_webhook(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: datetime | None = None,
) -> VerifiedWebhook:
    """Verify a request from Fieldpost, or from any sender of Standard Webhooks; raises InvalidWebhook.

    Pass the body as the bytes that arrived. During a rotation pass both secrets. `now` is the current time by default.
    """
    secrets = [check_signing_secret(one) for one in ([secret] if isinstance(secret, str) else secret)]
    return verify(secrets, headers, body, now or SystemClock().now(), tolerance_s)
