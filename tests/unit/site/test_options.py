"""The sections of site.toml."""

from typing import Any

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.site.config.options import BufferOptions, CallOptions, EventOptions, ForwardOptions, TrackingOptions


def test_the_forward_interval_is_one_value_of_ten_seconds_by_default() -> None:
    assert ForwardOptions().interval_s == 10
    assert ForwardOptions(interval_s=3).interval_s == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval_s", 0), ("interval_s", -1), ("interval_s", "10"), ("interval_s", float("nan")), ("interval_s", True),
        ("interval_s", float("inf")), ("jitter", 2), ("poll_s", 0), ("batch_items", 0), ("batch_items", 501),
        ("batch_items", 1.5), ("batch_bytes", 1 << 30), ("grace_s", -1), ("grace_s", None),
    ],
)  # fmt: skip
def test_value_out_of_range_is_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        ForwardOptions(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (CallOptions, "at_once_max", 0), (CallOptions, "per_target_max", 257), (CallOptions, "per_target_max", 1.5),
        (BufferOptions, "bytes_max", 1000), (BufferOptions, "bytes_max", -1), (BufferOptions, "overflow", "drop"),
        (BufferOptions, "reserve_bytes", 1), (BufferOptions, "reserve_bytes", "8M"),
        (TrackingOptions, "retention_days", 0), (TrackingOptions, "key_retention_days", float("inf")),
        (EventOptions, "notifications", "none"), (EventOptions, "retention_days", -1), (EventOptions, "bytes_max", 1),
        (EventOptions, "waiting_s", 0), (EventOptions, "notifications", None),
    ],
)  # fmt: skip
def test_invalid_value_of_any_section_is_rejected_by_name(kind: type[Any], field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        kind(**{field: value})
    assert caught.value.field == field


@pytest.mark.req("TRK-13", "SF-16")
def test_defaults_of_the_options() -> None:
    assert TrackingOptions().retention_days == 7
    assert EventOptions().retention_days == 30
    assert (BufferOptions().bytes_max, BufferOptions().overflow) == (0, "refuse")
