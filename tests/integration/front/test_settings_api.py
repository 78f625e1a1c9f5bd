"""`/api/v1/settings`, and the command that shows it."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fieldpost.core.setting import EffectiveSettings
from fieldpost.front.app import create_app
from fieldpost.run.effective_settings import effective_settings
from fieldpost.run.settings import CentralSettings
from fieldpost.testing import ManualClock
from support.commands import Cli
from support.front import Front, open_front, served


@pytest.fixture
async def front(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """One whose dispatcher has slots of its own choice, and whose key came by the environment."""
    settings = CentralSettings()
    settings = replace(
        settings,
        dispatch=replace(settings.dispatch, slots=7),
        secrets=replace(settings.secrets, key="canary"),
    )
    async with open_front(sqlite_url, clock) as opened:
        shown = EffectiveSettings("node-1", effective_settings(settings))
        yield replace(
            opened,
            app=create_app(
                opened.operate, opened.watch, opened.centre.ingest, opened.commands, effective_settings=shown
            ),
        )


async def test_an_admin_sees_every_setting_in_force_and_no_secret(front: Front) -> None:
    async with front.client("admin") as client:
        answer = await client.get("/api/v1/settings")
    found = {f"{one['section']}.{one['name']}": one for one in answer.json()["settings"]}
    assert answer.json()["node_id"] == "node-1"
    slots = found["dispatch.slots"]
    assert (slots["value"], slots["default"], slots["is_default"]) == (7, 64, False)
    assert found["dispatch.interval_s"]["unit"] == "seconds"
    assert found["secrets.key"]["value"] == "***"
    assert "canary" not in answer.text


@pytest.mark.req("DEC-33")
@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_settings_are_for_admins(front: Front, role: str) -> None:
    async with front.client(role) as client:
        assert (await client.get("/api/v1/settings")).status_code == 403


async def test_command_shows_settings_that_differ_from_their_default(front: Front, tmp_path: Path) -> None:
    async with served(front.app) as url:
        cli = Cli(front, url, tmp_path)
        ran = await cli("settings", "show", "--changed")
        assert [line.split()[0] for line in ran.out.splitlines()] == ["setting", "dispatch.slots", "secrets.key"]
        ran = await cli("settings", "show", "--json")
    assert len(json.loads(ran.out)["settings"]) > 50
