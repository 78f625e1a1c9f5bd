"""What the audit log can be narrowed by: what is understood, and what is refused by its name."""

from datetime import UTC, datetime

import pytest

from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.audit_filter import ACTIONS, AuditFilter
from fieldpost.core.search.filters import AUDIT_FILTERS

ID = "01936f3e-7f7c-7000-8000-000000000001"
NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
ALL = {
    "from": "2026-11-15T07:00:00.000000Z",
    "to": "2026-11-15T08:00:00.000000Z",
    "kind": ["operator_action"],
    "status": ["parked", "failed"],
    "channel": "api_inbound",
    "actor": "anna",
    "target": "operators",
    "site": "plant-7",
    "about": ID,
}


def entry(**more: object) -> AuditEntry:
    given = {
        "event_id": ID,
        "occurred_at": NOW,
        "kind": AuditKind.NOTIFY_DELIVER,
        "status": AuditStatus.ATTEMPTED,
        "actor": "system",
    }
    return AuditEntry(**given | more)  # type: ignore[arg-type]


def test_filter_round_trip() -> None:
    assert set(ALL) == {field.name for field in AUDIT_FILTERS}
    assert AuditFilter.parse(ALL).fields() == ALL
    assert AuditFilter.parse({}) == AuditFilter()


@pytest.mark.bad_input(45)
@pytest.mark.bad_input(46)
@pytest.mark.bad_input(47)
@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"colour": "red"}, "filter.unknown", "colour"),
        ({"actor": ["a", "b"]}, "filter.one", "actor"),
        ({"kind": "'; drop table audit"}, "filter.choice", "kind"),
        ({"status": ["parked", "lost"]}, "filter.choice", "status"),
        ({"channel": "notification,api_inbound"}, "filter.choice", "channel"),
        ({"about": "12"}, "filter.id", "about"),
        ({"from": "yesterday"}, "filter.time", "from"),
        ({"from": "2026-11-15T08:00:00Z", "to": "2026-11-15T07:00:00Z"}, "filter.range", "from"),
        ({"actor": ""}, "text.empty", "actor"),
        ({"site": "a\x00b"}, "text.nul", "site"),
        ({"target": "x" * 10_000}, "text.too_long", "target"),
    ],
)
def test_meaningless_value_is_rejected_by_its_field(given: dict[str, str], code: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        AuditFilter.parse(given)
    assert (caught.value.code, caught.value.field) == (code, field)


def test_filter_by_actor_or_target_selects_actions_unless_a_kind_is_given() -> None:
    sent = entry(kind=AuditKind.NOTIFY_SEND, actor="pump.py", target="operators")
    act = entry(kind=AuditKind.OPERATOR_ACTION, actor="anna", target="operators")
    assert [AuditFilter.parse({"target": "operators"}).fits(one) for one in (sent, act)] == [False, True]
    assert AuditFilter.parse({"actor": "pump.py", "kind": "notify_send"}).fits(sent)
    assert AuditFilter.parse({"channel": "api_inbound"}).selected_kinds == ACTIONS
    assert AuditFilter.parse({"channel": "notification"}).fits(entry(channel=AuditChannel.NOTIFICATION))


def test_entries_about_an_id_include_actions_on_it() -> None:
    wanted = AuditFilter.parse({"about": ID})
    assert wanted.fits(entry(correlation_id=ID))
    assert wanted.fits(entry(kind=AuditKind.OPERATOR_ACTION, target=ID))
    assert not wanted.fits(entry(target=ID))
    assert not wanted.fits(entry())


def test_range_includes_its_start_and_excludes_its_end() -> None:
    at = "2026-11-15T08:00:00Z"
    assert AuditFilter.parse({"from": at}).fits(entry())
    assert not AuditFilter.parse({"to": at}).fits(entry())
