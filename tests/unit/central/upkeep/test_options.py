"""The section [upkeep] of the settings."""

from datetime import timedelta

import pytest

from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.core.errors import ConfigError


@pytest.mark.req("CFG-06", "CFG-07")
def test_terminal_rows_are_kept_a_year_and_purged_daily_by_default() -> None:
    options = UpkeepOptions()
    assert options.terminal_retention_days == 365
    assert timedelta(seconds=options.purge_interval_s) == timedelta(days=1)


@pytest.mark.req("DEC-17")
def test_samples_are_taken_every_minute_and_stay_ninety_days_by_default() -> None:
    options = UpkeepOptions()
    assert timedelta(seconds=options.sample_interval_s) == timedelta(minutes=1)
    assert options.sample_retention_days == 90


@pytest.mark.req("DEC-06")
def test_lease_lasts_fifteen_seconds_and_is_renewed_every_five_by_default() -> None:
    options = UpkeepOptions()
    assert (options.lease_s, options.renew_s) == (15, 5)
    assert options.lease_s + options.renew_s <= 30, "the lead moves within half a minute"


def test_tombstones_outlive_any_terminal_retention_by_ninety_days() -> None:
    assert UpkeepOptions().tombstone_retention_days == 365 + 90
    assert UpkeepOptions(terminal_retention_days=1000).tombstone_retention_days == 1090
    assert UpkeepOptions(audit_retention_days=3650).tombstone_retention_days == 3650, "and not before the audit"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("terminal_retention_days", 0), ("terminal_retention_days", -1), ("terminal_retention_days", float("nan")),
        ("terminal_retention_days", float("inf")), ("terminal_retention_days", 1e9), ("audit_retention_days", 0),
        ("sample_retention_days", 0), ("node_retention_days", 0), ("tombstone_extra_days", 0),
        ("tombstone_extra_days", 89.9), ("purge_interval_s", 0), ("purge_batch", 0), ("purge_batch", 1001),
        ("sample_interval_s", 0), ("lease_s", 0), ("lease_s", 14.9), ("renew_s", 0), ("renew_s", float("inf")),
    ],
)  # fmt: skip
def test_value_out_of_range_is_rejected_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        UpkeepOptions(**{name: value})  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.field) == ("settings.range", f"upkeep.{name}")
    assert f"upkeep.{name} must be" in caught.value.message
