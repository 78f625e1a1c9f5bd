"""The section [watch] of the settings."""

from datetime import timedelta

import pytest

from fieldpost.central.watch.watch import WatchOptions
from fieldpost.core.errors import ConfigError
from fieldpost.core.kpi import Thresholds


@pytest.mark.req("CFG-05", "CFG-08", "KPI-05", "KPI-07")
def test_defaults_are_ten_minutes_for_stuck_and_one_for_the_delivered_window() -> None:
    options = WatchOptions()
    assert timedelta(seconds=options.stuck_after_s) == timedelta(minutes=10)
    assert timedelta(seconds=options.delivered_window_s) == timedelta(minutes=1)


@pytest.mark.req("KPI-07", "DEC-16")
def test_thresholds_follow_the_settings_and_overdue_is_two_sweeps() -> None:
    by = WatchOptions(stuck_after_s=90, delivered_window_s=300).thresholds(sweep_interval_s=7)
    assert by == Thresholds(timedelta(seconds=90), timedelta(seconds=14), timedelta(seconds=300))
    assert WatchOptions().thresholds(10) == Thresholds()


@pytest.mark.parametrize("name", ["stuck_after_s", "delivered_window_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e12])
def test_value_out_of_range_is_rejected_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        WatchOptions(**{name: value})
    assert (caught.value.code, caught.value.field) == ("settings.range", f"watch.{name}")
