"""Adapters are loaded once for a node's life and closed at its end."""

import asyncio
from pathlib import Path

import pytest

from fieldpost.central import adapters
from fieldpost.run.central import Started, run_central
from fieldpost.run.settings import CentralOptions, Settings
from support.centre import DEADLINE_S, ScriptedAdapter


class Counting(ScriptedAdapter):
    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.req("DSP-14")
async def test_a_node_loads_its_adapters_once_and_closes_them_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def load(*_: object) -> dict[str, Counting]:
        loaded.append(Counting())
        return {"email": loaded[-1]}

    monkeypatch.setattr(adapters, "load", load)  # stands for another set of installed entry points
    stopping = asyncio.Event()
    started: list[Started] = []

    def on_started(told: Started) -> None:
        started.append(told)
        stopping.set()

    settings = Settings(central=CentralOptions(folder=str(tmp_path), port=0))
    async with asyncio.timeout(DEADLINE_S):
        await run_central(settings, on_started, stopping=stopping)

    assert len(started) == 1
    assert [adapter.closed for adapter in loaded] == [1]
