"""Adapters are loaded once for a node's life and closed at its end."""

import asyncio
import sys
from pathlib import Path

import pytest

from fieldpost.run.central import Started, run_central
from fieldpost.run.settings import CentralOptions, CentralSettings
from support.adapter_packages import ADAPTER, install_adapters
from support.centre import DEADLINE_S

TELLING = (
    "life = []\n"
    + ADAPTER.format(name="Pager", type="pager").replace("close(self): ...", "close(self): life.append('closed')")
    + "    def __init__(self): life.append('made')\n"
)


@pytest.mark.req("DSP-14")
async def test_a_node_loads_its_adapters_once_and_closes_them_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install_adapters(tmp_path, "acme_telling", TELLING, "pager = acme_telling:Pager")
    stopping = asyncio.Event()
    lives: list[list[str]] = []

    def on_started(_: Started) -> None:
        lives.append([*sys.modules["acme_telling"].life])
        stopping.set()

    settings = CentralSettings(central=CentralOptions(folder=str(tmp_path / "data"), port=0))
    async with asyncio.timeout(DEADLINE_S):
        await run_central(settings, on_started, stopping=stopping)

    assert lives == [["made"]]
    assert sys.modules["acme_telling"].life == ["made", "closed"]
