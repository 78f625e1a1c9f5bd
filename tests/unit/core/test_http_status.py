"""The table of what an external system's status means."""

import pytest

from fieldpost.core.sites.http_status import Meaning, meaning_of

TABLE = {
    Meaning.TAKEN: [200, 201, 202, 204, 207, 299],
    Meaning.NOT_NOW: [408, 429, 500, 501, 502, 503, 504, 507, 599, 600, 999, 100, 0],
    Meaning.REFUSED: [300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 409, 410, 411, 413, 415, 422,
                      425, 428, 431, 451, 499],
}  # fmt: skip


@pytest.mark.req("SF-14", "SF-15", "DEC-23")
@pytest.mark.parametrize(
    ("status", "meaning"), [(status, meaning) for meaning, statuses in TABLE.items() for status in statuses]
)
def test_each_status_means_one_thing(status: int, meaning: Meaning) -> None:
    assert meaning_of(status) is meaning
