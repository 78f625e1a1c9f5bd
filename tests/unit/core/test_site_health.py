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
def test_health_of_a_site_follows_from_the_age_of_its_last_report(age_s: float, state: str) -> None:
    assert link_state(reported(NOW - timedelta(seconds=age_s)), NOW, BY) is LinkState(state)


def test_agent_that_announced_its_stop_is_stopped_at_once_and_stays_stopped() -> None:
    for at in (NOW, NOW - timedelta(days=1)):
        health = reported(at, is_stopping=True)
        link = link_state(health, NOW, BY)
        assert link is LinkState.OFFLINE
        assert condition_of(link, health.report, is_revoked=False) is SiteCondition.STOPPED


def test_a_site_that_never_reported_is_offline() -> None:
    assert link_state(None, NOW, BY) is LinkState.OFFLINE


@pytest.mark.parametrize("changed", [{"state": "late"}, {"parked": 1}, {"rejected": 1}, {"depth": 3}])
def test_change_of_state_is_sampled(changed: dict[str, object]) -> None:
    assert not is_worth_keeping(QUIET, QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, **changed), QUIET, NOW - MINUTE, NOW)


def test_backlog_is_sampled_every_minute_and_a_quiet_site_every_hour() -> None:
    busy = replace(QUIET, depth=3, oldest_age_s=90)
    assert is_worth_keeping(busy, busy, NOW - MINUTE, NOW)
    assert is_worth_keeping(QUIET, QUIET, NOW - timedelta(hours=1), NOW)
    assert is_worth_keeping(QUIET, None, None, NOW)


def test_free_disk_space_is_sampled_when_it_changed_by_a_twentieth() -> None:
    assert not is_worth_keeping(replace(QUIET, disk_free_bytes=950), QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, disk_free_bytes=949), QUIET, NOW - MINUTE, NOW)
    assert is_worth_keeping(replace(QUIET, disk_free_bytes=None), QUIET, NOW - MINUTE, NOW)


def test_report_stored_by_another_version_is_read() -> None:
    report = SiteReport(version="1.2", backlog={"notification": 3, "external_call": 2}, parked=1)
    assert report_from(asdict(report)) == report
    assert report_from({"parked": 2, "of_a_newer_version": True}) == SiteReport(parked=2)
    health = SiteHealth(site="plant-7", received_at=NOW, report=report, clock_offset_s=0)
    assert figures_of(health, LinkState.ONLINE).depth == 5
