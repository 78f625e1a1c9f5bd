"""Times that people type into a form."""

from datetime import UTC, datetime

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.front.console.kit.times import local_text, moment_in, zone_of


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("2026-11-15T08:00", "", "2026-11-15T08:00:00"),
        ("2026-11-15T08:00", "UTC", "2026-11-15T08:00:00"),
        ("2026-11-15T08:00", "Europe/Amsterdam", "2026-11-15T07:00:00"),
        ("2026-07-15T08:00:30", "Europe/Amsterdam", "2026-07-15T06:00:30"),
        ("2026-11-15 08:00", "Asia/Kolkata", "2026-11-15T02:30:00"),
        ("2026-11-15T08:00:00Z", "Europe/Amsterdam", "2026-11-15T08:00:00"),
        ("2026-11-15T08:00:00+02:00", "", "2026-11-15T06:00:00"),
        ("2026-10-25T02:30", "Europe/Amsterdam", "2026-10-25T00:30:00"),
        ("2026-03-29T02:30", "Europe/Amsterdam", "2026-03-29T01:30:00"),
        ("0001-01-02T00:00", "Europe/Amsterdam", "1970-01-01T00:00:00"),
    ],
)
def test_time_without_a_zone_is_in_the_zone_of_the_form(text: str, zone: str, moment: str) -> None:
    assert moment_in(text, zone, "from") == datetime.fromisoformat(moment).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-11-15", "2026-13-15T08:00", "2026-11-15T25:00", "0001-01-01T00:00", "٢٠٢٦-11-15T08:00"],
)
def test_invalid_time_is_rejected_by_its_field(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        moment_in(text, "Asia/Tokyo", "from")
    assert (error.value.code, error.value.field) == ("filter.time", "from")


@pytest.mark.parametrize(
    "name", ["Europe", "Atlantis/Capital", "../../etc/passwd", "/etc/localtime", "a" * 65, "Zürich"]
)
def test_unknown_time_zone_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        zone_of(name)
    assert (error.value.code, error.value.field) == ("time.zone", "zone")


@pytest.mark.parametrize("zone", ["", "Europe/Amsterdam", "America/St_Johns"])
@pytest.mark.parametrize("text", ["2026-11-15T08:00", "2026-07-01T23:59:59"])
def test_typed_time_is_shown_as_typed(text: str, zone: str) -> None:
    assert local_text(moment_in(text, zone, "to"), zone) == text
