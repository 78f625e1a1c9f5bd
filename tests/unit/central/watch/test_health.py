"""The checks of readiness, each by its rule."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.store.figures.leases import LEADER, Lease
from fieldpost.central.store.figures.nodes import NodeRecord
from fieldpost.central.store.schema.migrate import Schema
from fieldpost.central.watch.health import Readiness, dispatcher_check, leader_check, migrations_check
from fieldpost.central.watch.nodes import LOST_AFTER, Centre, NodeState, state_of
from fieldpost.core.checks import Check, Verdict

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("silent_s", "in_flight", "interval_s", "verdict"),
    [
        (0, 0, 10, Verdict.OK),
        (30, 0, 10, Verdict.OK),
        (30.1, 0, 10, Verdict.FAILING),
        (30.1, 0, 60, Verdict.OK),
        (180.1, 0, 60, Verdict.FAILING),
        (900, 64, 10, Verdict.OK),  # every slot is taken by a slow mail server
        (1201, 64, 10, Verdict.FAILING),
    ],
)
def test_a_dispatcher_lives_that_sweeps_or_waits_for_what_is_in_flight(
    silent_s: float, in_flight: int, interval_s: float, verdict: Verdict
) -> None:
    assert dispatcher_check(silent_s, in_flight, interval_s).verdict is verdict


@pytest.mark.parametrize(
    ("lease", "verdict"),
    [
        (None, Verdict.WARNING),
        (Lease(LEADER, "a", NOW, 1), Verdict.WARNING),
        (Lease(LEADER, "a", NOW + SECOND, 1), Verdict.OK),
    ],
)
def test_nobody_leads_is_a_warning(lease: Lease | None, verdict: Verdict) -> None:
    centre = Centre((), {} if lease is None else {LEADER: lease}, NOW)
    assert leader_check(centre).verdict is verdict
    assert centre.leader == ("a" if verdict is Verdict.OK else None)


@pytest.mark.parametrize(
    ("schema", "verdict"),
    [
        (Schema("0002", "0002", is_newer=False), Verdict.OK),
        (Schema("0001", "0002", is_newer=False), Verdict.FAILING),
        (Schema(None, "0002", is_newer=False), Verdict.FAILING),
        (Schema("0009", "0002", is_newer=True), Verdict.WARNING),
    ],
)
def test_an_old_schema_fails_and_a_newer_one_warns(schema: Schema, verdict: Verdict) -> None:
    assert migrations_check(schema).verdict is verdict


def test_a_node_is_ready_with_warnings_but_not_with_failures() -> None:
    ok, warning, failing = (Check("x", verdict, "") for verdict in Verdict)
    assert Readiness((ok, warning)).is_ready
    assert not Readiness((ok, warning, failing)).is_ready


def test_a_node_that_was_not_heard_of_for_long_is_lost() -> None:
    node = NodeRecord("a", "host", "1", NOW, NOW, None)
    assert state_of(node, NOW + LOST_AFTER) is NodeState.RUNNING
    assert state_of(node, NOW + LOST_AFTER + SECOND) is NodeState.LOST
    stopped = NodeRecord("a", "host", "1", NOW, NOW, NOW)
    assert state_of(stopped, NOW + timedelta(days=1)) is NodeState.STOPPED
