"""The formulas of the KPIs, each on the few rows that show what it means."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.core.kpi import (
    KPIS,
    NAMES,
    NOTHING,
    KpiRow,
    Thresholds,
    compute,
    compute_by_site,
    fold,
    is_stuck,
    of_kind,
)
from fieldpost.core.notification import NotificationKind, Status

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
BY = Thresholds()
MICROSECOND = timedelta(microseconds=1)
HOUR_AGO = NOW - timedelta(hours=1)
PENDING = KpiRow("plant-7", Status.PENDING, NOW, NOW, due_at=NOW)
OLD = replace(PENDING, created_at=HOUR_AGO, cycle_started_at=HOUR_AGO, due_at=HOUR_AGO)


def figure(name: str, *rows: KpiRow) -> float:
    return compute(rows, NOW, BY)[name]


def of_each_status() -> list[KpiRow]:
    return [replace(PENDING, status=status) for status in Status]


@pytest.mark.req("KPI-02")
def test_queue_depth_counts_pending_and_retrying() -> None:
    assert figure("queue_depth", *of_each_status()) == 2
    assert figure("queue_depth", PENDING, PENDING, replace(PENDING, status=Status.RETRYING)) == 3


@pytest.mark.req("KPI-04")
def test_parked_counts_only_parked_rows() -> None:
    assert figure("parked", *of_each_status()) == 1


@pytest.mark.req("KPI-03", "KPI-07", "CFG-05")
@pytest.mark.parametrize("status", list(Status))
def test_stuck_counts_rows_live_for_longer_than_ten_minutes(status: Status) -> None:
    at_threshold = replace(PENDING, status=status, cycle_started_at=NOW - timedelta(minutes=10))
    beyond = replace(at_threshold, cycle_started_at=at_threshold.cycle_started_at - MICROSECOND)
    assert figure("stuck", at_threshold) == 0
    assert figure("stuck", beyond) == (status in (Status.PENDING, Status.RETRYING))
    assert is_stuck(beyond, NOW, BY.stuck_after) == bool(figure("stuck", beyond))


@pytest.mark.req("DEC-69", "KPI-03")
def test_notification_that_an_operator_just_retried_is_not_stuck_even_if_it_is_old() -> None:
    retried = replace(PENDING, created_at=NOW - timedelta(days=3), cycle_started_at=NOW - timedelta(seconds=1))
    assert figure("stuck", retried) == 0
    assert figure("stuck", replace(retried, cycle_started_at=NOW - timedelta(minutes=11))) == 1
    assert "last retry by an operator" in next(kpi.help for kpi in KPIS if kpi.name == "stuck")


@pytest.mark.req("DEC-16", "DEC-10")
def test_stuck_counts_held_rows_and_overdue_leaves_them_out() -> None:
    assert (figure("stuck", OLD), figure("overdue", OLD)) == (1, 1)
    held = replace(OLD, is_held=True)
    assert (figure("stuck", held), figure("overdue", held)) == (1, 0)


@pytest.mark.req("DEC-52")
def test_a_webhook_that_is_held_or_waits_for_its_retry_time_is_not_stuck() -> None:
    due = replace(OLD, type="webhook", status=Status.RETRYING)
    assert figure("webhooks_stuck", due) == 1, "due and not delivered"
    assert figure("webhooks_stuck", replace(due, due_at=NOW)) == 1
    assert figure("webhooks_stuck", replace(due, due_at=NOW + MICROSECOND)) == 0, "waits for its retry time"
    assert figure("webhooks_stuck", replace(due, is_held=True)) == 0
    assert figure("webhooks_stuck", replace(due, status=Status.PENDING)) == 1
    mail = replace(due, type="email", due_at=NOW + MICROSECOND, is_held=True)
    assert figure("stuck", mail) == 1, "for lists the rule is the age alone"


@pytest.mark.req("DEC-52")
def test_webhooks_are_counted_separately_from_lists() -> None:
    webhook = replace(OLD, type="webhook", created_at=NOW - timedelta(days=2))
    figures = compute([OLD, webhook, webhook, replace(webhook, status=Status.PARKED)], NOW, BY)
    names = ("queue_depth", "parked", "oldest_pending_age_s")
    assert [figures[name] for name in names] == [1, 0, 3600]
    assert [figures[f"webhooks_{name}"] for name in names] == [2, 1, 2 * 86_400]
    assert [of_kind(figures)[name] for name in names] == [3, 1, 2 * 86_400], "together: sums, and the larger age"
    assert of_kind(figures, NotificationKind.WEBHOOK)["queue_depth"] == 2
    assert of_kind(figures, NotificationKind.LIST)["queue_depth"] == 1


@pytest.mark.req("DEC-16")
def test_overdue_counts_unclaimed_rows_due_for_longer_than_two_sweeps() -> None:
    at_threshold = replace(OLD, due_at=NOW - timedelta(seconds=20))
    beyond = replace(OLD, due_at=NOW - timedelta(seconds=20) - MICROSECOND)
    assert figure("overdue", at_threshold) == 0
    assert figure("overdue", beyond) == 1
    assert figure("overdue", replace(beyond, lease_until=NOW + timedelta(seconds=90))) == 0
    assert figure("overdue", replace(beyond, due_at=NOW + timedelta(minutes=5))) == 0


@pytest.mark.req("DEC-16")
def test_a_row_whose_lease_ran_out_is_overdue_two_sweeps_after_that() -> None:
    assert figure("overdue", replace(OLD, lease_until=NOW - timedelta(seconds=20))) == 0
    assert figure("overdue", replace(OLD, lease_until=NOW - timedelta(seconds=20) - MICROSECOND)) == 1


def test_row_is_not_overdue_before_two_sweeps_after_its_arrival_with_any_clock() -> None:
    assert figure("overdue", replace(OLD, created_at=NOW - timedelta(seconds=20))) == 0
    assert figure("overdue", replace(OLD, created_at=NOW - timedelta(seconds=20) - MICROSECOND)) == 1


@pytest.mark.req("KPI-05", "CFG-08")
def test_delivered_last_interval_counts_the_trailing_minute() -> None:
    delivered = KpiRow("plant-7", Status.DELIVERED, HOUR_AGO, HOUR_AGO, delivered_at=NOW - timedelta(minutes=1))
    assert figure("delivered_last_interval", delivered) == 0
    assert figure("delivered_last_interval", replace(delivered, delivered_at=delivered.delivered_at + MICROSECOND)) == 1
    assert figure("delivered_last_interval", *of_each_status()) == 0


@pytest.mark.req("KPI-06")
def test_oldest_pending_age_is_that_of_the_oldest_row_that_is_not_terminal() -> None:
    ages = [replace(row, created_at=NOW - timedelta(seconds=30 + i)) for i, row in enumerate(of_each_status())]
    assert figure("oldest_pending_age_s", *ages) == 31
    assert figure("oldest_pending_age_s", *ages[2:]) == 0


@pytest.mark.req("KPI-01")
def test_kpis_per_site_add_up_to_those_of_all_sites() -> None:
    old = replace(PENDING, site="north", created_at=NOW - timedelta(seconds=90))
    rows = [PENDING, old, old, replace(PENDING, site="south", status=Status.PARKED)]
    by_site = compute_by_site(rows, NOW, BY)
    assert {site: figures["queue_depth"] for site, figures in by_site.items()} == {"plant-7": 1, "north": 2, "south": 0}
    assert {site: figures["oldest_pending_age_s"] for site, figures in by_site.items()} == {
        "plant-7": 0,
        "north": 90,
        "south": 0,
    }
    assert fold(by_site.values()) == compute(rows, NOW, BY)


def test_every_kpi_of_no_rows_is_zero() -> None:
    assert compute([], NOW, BY) == NOTHING == fold([])
    assert set(NOTHING) == set(NAMES)


def test_every_kpi_has_a_description_and_a_unit() -> None:
    assert len(set(NAMES)) == len(KPIS) > 0
    for kpi in KPIS:
        assert kpi.unit in ("notifications", "webhooks", "cached calls", "seconds")
        assert (kpi.formula is None) != (kpi.call_formula is None)
        assert kpi.help.endswith(".")
        assert kpi.name.endswith("_s") == (kpi.unit == "seconds")
