"""Fixtures of the site's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.plant import Plant, running_plant


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    with running_plant(tmp_path / "plant") as plant:
        yield plant
