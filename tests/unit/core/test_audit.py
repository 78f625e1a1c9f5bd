"""The words of the audit log: those of the ledger, section 3.2, in our spelling."""

import re
from dataclasses import fields

from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus

CHANNELS = "ApiOutbound, DbOutbound, Notification, ApiInbound"
KINDS = (
    "ApiCall, ApiCallCached, DbWrite, DbWriteCached, NotifySend, NotifyDeliver, InboundRequest, InboundAuthFailure,"
    " CachedSubmit, CachedResolve"
)
STATUSES = "Submitted, Forwarded, Attempted, Delivered, Failed, Parked, Discarded, Skipped"
FIELDS = (
    "EventId, OccurredAt, CorrelationId, ExecutionId, ParentExecutionId, Channel, Kind, Status, SourceSiteId,"
    " SourceNode, SourceInstanceId, SourceScript, Actor, Target, HttpStatus, DurationMs, ErrorMessage, ErrorDetail,"
    " RequestSummary, ResponseSummary, PayloadTruncated, Extra"
)
UNUSED = "HttpStatus, ErrorDetail, PayloadTruncated"
"""Fields of the ledger that no entry of central would fill: they have no column."""


def ours(words: str) -> set[str]:
    """The ledger's words as they are stored: lower snake case."""
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower() for word in words.split(", ")}


def test_channels_and_statuses_are_those_of_the_ledger() -> None:
    assert {channel.value for channel in AuditChannel} == ours(CHANNELS)
    assert {status.value for status in AuditStatus} == ours(STATUSES)


def test_kinds_are_those_of_the_ledger_and_one_for_operator_actions() -> None:
    assert {kind.value for kind in AuditKind} == ours(KINDS) | {"operator_action"}


def test_an_entry_has_the_ledgers_fields_and_the_bulk_action() -> None:
    """Except `IngestedAt`, which the store writes, `ForwardState`, which belongs to a site, and the unused fields."""
    assert {field.name for field in fields(AuditEntry)} == (ours(FIELDS) - ours(UNUSED)) | {"bulk_action_id"}
