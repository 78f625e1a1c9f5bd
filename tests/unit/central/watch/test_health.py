"""The checks of readiness, each by its rule."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.store.figures.leases import LEADER, Lease
from fieldpost.central.store.figures.nodes import NodeRecord
from fieldpost.central.store.schema.migrate import SchemaState
from fieldpost.central.watch.health import audit_check, dispatcher_check, leader_check, migrations_check
from fieldpost.central.watch.nodes import LOST_AFTER, Centre, NodeState, state_of
from fieldpost.core.checks import Check, CheckVerdict, Diagnosis

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("silent_s", "in_flight", "interval_s", "verdict"),
    [
        (0, 0, 10, CheckVerdict.OK),
        (30, 0, 10, CheckVerdict.OK),
        (30.1, 0, 10, CheckVerdict.FAILING),
        (30.1, 0, 60, CheckVerdict.OK),
        (180.1, 0, 60, CheckVerdict.FAILING),
        (900, 64, 10, CheckVerdict.OK),  # every slot is taken by a slow mail server
        (1201, 64, 10, CheckVerdict.FAILING),
    ],
)
def test_dispatcher_that_sweeps_or_waits_for_attempts_is_alive(
    silent_s: float, in_flight: int, interval_s: float, verdict: CheckVerdict
) -> None:
    assert dispatcher_check(silent_s, in_flight, interval_s).verdict is verdict


@pytest.mark.parametrize(
    ("lease", "verdict"),
    [
        (None, CheckVerdict.WARNING),
        (Lease(LEADER, "a", NOW, 1), CheckVerdict.WARNING),
        (Lease(LEADER, "a", NOW + SECOND, 1), CheckVerdict.OK),
    ],
)
def test_missing_leader_is_a_warning(lease: Lease | None, verdict: CheckVerdict) -> None:
    centre = Centre((), {} if lease is None else {LEADER: lease}, NOW)
    assert leader_check(centre).verdict is verdict
    assert centre.leader == ("a" if verdict is CheckVerdict.OK else None)


@pytest.mark.parametrize(
    ("schema", "verdict"),
    [
        (SchemaState("m0002", "m0002", is_newer=False), CheckVerdict.OK),
        (SchemaState("m0001", "m0002", is_newer=False), CheckVerdict.FAILING),
        (SchemaState(None, "m0002", is_newer=False), CheckVerdict.FAILING),
        (SchemaState("m0009", "m0002", is_newer=True), CheckVerdict.WARNING),
        (SchemaState("0009", "m0002", is_newer=False, is_unreleased=True), CheckVerdict.FAILING),
    ],
)
def test_an_old_schema_fails_and_a_newer_one_warns(schema: SchemaState, verdict: CheckVerdict) -> None:
    assert migrations_check(schema).verdict is verdict


def test_a_node_is_ready_with_warnings_but_not_with_failures() -> None:
    ok, warning, failing = (Check("x", verdict, "") for verdict in CheckVerdict)
    assert Diagnosis((ok, warning)).is_ready
    assert not Diagnosis((ok, warning, failing)).is_ready


def test_silent_node_is_lost() -> None:
    node = NodeRecord("a", "host", "1", NOW, NOW, None)
    assert state_of(node, NOW + LOST_AFTER) is NodeState.RUNNING
    assert state_of(node, NOW + LOST_AFTER + SECOND) is NodeState.LOST
    stopped = NodeRecord("a", "host", "1", NOW, NOW, NOW)
    assert state_of(stopped, NOW + timedelta(days=1)) is NodeState.STOPPED


@pytest.mark.parametrize(("late_s", "verdicts"), [(None, []), (60, []), (600, [CheckVerdict.WARNING])])
def test_audit_entries_that_stay_unsealed_are_a_warning(late_s: int | None, verdicts: list[CheckVerdict]) -> None:
    since = None if late_s is None else NOW - timedelta(seconds=late_s)
    assert [check.verdict for check in audit_check(since, NOW)] == verdicts
