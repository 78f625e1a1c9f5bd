"""Filter declarations: complete, readable by every surface, and reversible."""

from dataclasses import fields
from enum import StrEnum

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.filters import (
    AUDIT_FILTERS,
    CALL_FILTERS,
    INTENT_FILTERS,
    NOTIFICATION_FILTERS,
    FilterField,
    FilterKind,
    read_filters,
)
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.sites.message import Category

DECLARED = (NOTIFICATION_FILTERS, AUDIT_FILTERS, CALL_FILTERS, INTENT_FILTERS)
DERIVED = {"stuck_before", "stuck_at", "overdue_before"}
"""Attributes of a filter that are computed, never given."""


@pytest.mark.parametrize(
    ("type_", "declared"), [(Filter, NOTIFICATION_FILTERS), (AuditFilter, AUDIT_FILTERS), (CallFilter, CALL_FILTERS)]
)
def test_every_attribute_of_a_filter_is_declared(type_: type, declared: tuple[FilterField, ...]) -> None:
    assert {field.attribute for field in declared} == {field.name for field in fields(type_)} - DERIVED


@pytest.mark.parametrize("declared", DECLARED)
def test_declarations_have_unique_names_help_and_choices_where_needed(declared: tuple[FilterField, ...]) -> None:
    assert len({field.name for field in declared}) == len(declared)
    for field in declared:
        assert field.help
        assert not field.help.endswith(".")
        assert bool(field.choices) == (field.kind is FilterKind.CHOICE)


def test_a_choice_is_read_as_a_member_of_its_enumeration() -> None:
    read = read_filters(NOTIFICATION_FILTERS, {"status": ["parked", "parked", "retrying"]})
    assert read == {"statuses": (Status.PARKED, Status.RETRYING)}
    assert all(isinstance(status, StrEnum) for status in read["statuses"])
    assert read_filters(CALL_FILTERS, {"category": "external_call"}) == {"category": Category.EXTERNAL_CALL}


def test_an_invalid_choice_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidInput, match="category must be one of external_call, database_write, not 'notification'"):
        read_filters(CALL_FILTERS, {"category": "notification"})
