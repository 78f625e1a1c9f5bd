"""The section [forward] of site.toml."""

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.site.options import ForwardOptions


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
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        ForwardOptions(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
