"""Settling accepted targets: by their receipts, or by the rule for receipts that never arrive."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.lifecycle import AWAITS_RECEIPT, Hold, Policy, Transition, decide
from fieldpost.core.delivery.outcome import Delivered, Evidence, Held, Outcome, TransientFailure, fold, name_errors
from fieldpost.core.delivery.receipt import Receipt, ReceiptMissing, ReceiptStatus
from fieldpost.core.notification import Notification, Target, TargetStatus

_BY_RECEIPT = {
    ReceiptStatus.DELIVERED: TargetStatus.DELIVERED,
    ReceiptStatus.FAILED: TargetStatus.FAILED,
    ReceiptStatus.DUE: TargetStatus.DUE,
}
_BY_RULE = {
    ReceiptMissing.DELIVERED: TargetStatus.DELIVERED,
    ReceiptMissing.RETRY: TargetStatus.DUE,
    ReceiptMissing.PARK: TargetStatus.FAILED,
}


def without_receipts(n: Notification, policy: Policy, now: datetime) -> Outcome:
    """The outcome for a notification without due targets of which some are accepted.

    The channel's rule applies to those that have waited for their receipt long enough; else it waits on.
    """
    accepted = [t for t in n.targets if t.status is TargetStatus.ACCEPTED]
    over = [t for t in accepted if (t.accepted_at or now) + policy.receipt_wait <= now]
    if not over:
        wait = min((t.accepted_at or now) for t in accepted) + policy.receipt_wait - now
        return Held(AWAITS_RECEIPT, phase="receipt", evidence=Evidence.NONE, kind=HoldKind.RECEIPT, wait=wait)
    remark = f"no receipt within {policy.receipt_wait.total_seconds():g} s"
    status = _BY_RULE[policy.receipt_missing]
    return _outcome(tuple(replace(t, status=status, error=remark) for t in over))


def by_receipts(
    n: Notification, receipts: Mapping[str, Receipt], policy: Policy, now: datetime, chance: float
) -> Transition | None:
    """The transition of a notification by final receipts on accepted targets, by address; None if they change nothing.

    If other targets are due, the row keeps its place: the next attempt goes to all that are due then.
    """
    settled = tuple(
        replace(t, status=_BY_RECEIPT[receipt.status], error=_error(receipt))
        for t in n.targets
        if t.status is TargetStatus.ACCEPTED and (receipt := receipts.get(t.address)) is not None
    )
    if not settled:
        return None
    if any(t.status is TargetStatus.DUE for t in n.targets):
        return Transition(
            status=n.status,
            retry_count=n.retry_count,
            cycle=n.cycle,
            last_error=n.last_error,
            last_attempt_at=n.last_attempt_at,
            next_attempt_at=n.next_attempt_at,
            due_at=n.due_at,
            held_by=n.held_by,
            held_reason=n.held_reason,
            targets=settled,
        )
    made = decide(n, _outcome(settled), policy, Hold("", now), now, chance)
    return replace(made, last_attempt_at=n.last_attempt_at)


def _outcome(targets: tuple[Target, ...]) -> Outcome:
    if any(t.status is TargetStatus.DUE for t in targets):
        return TransientFailure(
            name_errors(targets, TargetStatus.DUE), targets, phase="receipt", evidence=Evidence.NONE
        )
    if all(t.status is TargetStatus.DELIVERED for t in targets):
        return Delivered(targets, phase="receipt", evidence=Evidence.NONE)
    return replace(fold(targets, phase="receipt"), evidence=Evidence.NONE)


def _error(receipt: Receipt) -> str | None:
    if receipt.status is ReceiptStatus.DELIVERED:
        return None
    return receipt.error or "the provider reported a failure without a reason"
