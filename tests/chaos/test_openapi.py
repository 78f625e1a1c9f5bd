"""The long form of `tests/integration/front/test_openapi.py`: every case that the API's description defines."""

from pathlib import Path

import pytest

from fieldpost.testing import ManualClock
from support.front import open_front
from support.schemathesis import try_all, try_zgw
from support.zgw import KANAAL, open_zgw


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ["publisher", "subscriber", "viewer", "operator", "admin"])
async def test_every_case_that_the_description_defines_is_answered_as_it_says(
    sqlite_url: str, role: str, tmp_path: Path
) -> None:
    async with open_front(sqlite_url, ManualClock()) as front:
        await try_all(front, role, tmp_path, "--max-examples", "10")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", ["publisher", "consumer", "both"])
async def test_every_case_that_the_zgw_document_defines_is_answered_as_it_says(
    sqlite_url: str, client: str, tmp_path: Path
) -> None:
    async with open_front(sqlite_url, ManualClock()) as front, open_zgw(front) as zgw:
        await zgw.create("kanaal", KANAAL)
        await try_zgw(zgw, client, tmp_path, "--max-examples", "50")
