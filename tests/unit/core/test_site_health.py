"""When a site is online, late or offline, and which of its figures are kept."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fieldpost.core.sites.health import (
    Freshness,
    HealthFigures,
    LinkState,
    SiteCondition,
    SiteHealth,
    SiteReport,
    condition_of,
    figures_of,
    is_worth_keeping,
    link_state,
    report_from,
)
from support.sample import MINUTE, NOW

BY = Freshness()


def reported(at: datetime, **report: Any) -> SiteHealth:
    return SiteHealth(site="plant-7", received_at=at, report=SiteReport(**report), clock_offset_s=0)


QUIET = HealthFigures(state="online", depth=0, oldest_age_s=0, parked=0, rejected=0, disk_free_bytes=1000)


@pytest.mark.req("DEC-26")
@pytest.mark.parametrize(
    ("age_s", "state"),
    [(0, "online"), (45, "online"), (45.001, "late"), (60, "late"), (60.001, "offline"), (86400, "offline")],
)
def test_a_site_is_judged_by_the_age_of_its_last_report(age_s: float, state: str) -> None:
    assert link_state(reported(NOW - timedelta(seconds=age_s)), NOW, BY) is LinkState(state)


def test_an_agent_that_said_it_stops_is_stopped_at_once_and_stays_so() -> None:
    for at in (NOW, NOW - timedelta(days=1)):
        health = reported(at, is_stopping=True)
        link = link_state(health, NOW, BY)
        assert link is LinkState.OFFLINE
        assert condition_of(link, health.report, is_revoked=False) is SiteCondition.STOPPED


def test_a_site_that_never_reported_is_offline() -> None:
    assert link_state(None, NOW, BY) is LinkState.OFFLINE


@pytest.mark.parametrize("changed", [{"state": "late"}, {"parked": 1}, {"rejected": 1}, {"depth": 3}])
def test_a_change_is_worth_a_sample(changed: dict[str, object]) -> None:
    assert not is_worth_keeping(QUIET, QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, **changed), QUIET, NOW - MINUTE, NOW)


def test_a_backlog_is_kept_every_minute_and_quiet_every_hour() -> None:
    busy = replace(QUIET, depth=3, oldest_age_s=90)
    assert is_worth_keeping(busy, busy, NOW - MINUTE, NOW)
    assert is_worth_keeping(QUIET, QUIET, NOW - timedelta(hours=1), NOW)
    assert is_worth_keeping(QUIET, None, None, NOW)


def test_free_disk_space_is_kept_when_it_has_changed_by_a_twentieth() -> None:
    assert not is_worth_keeping(replace(QUIET, disk_free_bytes=950), QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, disk_free_bytes=949), QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, disk_free_bytes=None), QUIET, NOW - MINUTE, NOW)


def test_a_report_is_read_as_it_was_kept_whatever_version_kept_it() -> None:
    report = SiteReport(version="1.2", backlog={"notification": 3, "external_call": 2}, parked=1)
    assert report_from(asdict(report)) == report
    assert report_from({"parked": 2, "of_a_newer_version": True}) == SiteReport(parked=2)
    health = SiteHealth(site="plant-7", received_at=NOW, report=report, clock_offset_s=0)
    assert figures_of(health, LinkState.ONLINE).depth == 5
