"""The API's description is complete and true: a program reads it, tries all that it says, and finds nothing else."""

import asyncio
import sys
from pathlib import Path

import pytest

from fieldpost.front.api.openapi import document
from fieldpost.front.api.promise import promise_of
from fieldpost.front.api.routes import ROUTES
from support.front import Front, served

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
SETTINGS = Path(__file__).with_name("schemathesis.toml")
TRIED = {
    "viewer": ("--phases", "fuzzing", "--max-examples", "2"),
    "operator": ("--phases", "fuzzing", "--max-examples", "2"),
    "admin": ("--max-examples", "4"),
}
"""An admin may do everything, so all that the description defines is tried as one; the others see mostly refusals."""


def test_every_route_of_the_api_is_described() -> None:
    described = document(ROUTES)["paths"]
    for route in ROUTES:
        if route.path.startswith("/link/"):
            assert promise_of(route.handler) is None, "the link is described by itself"
        else:
            assert route.method.lower() in described[route.path.replace(":path}", "}")], route.path


def test_operations_have_names_of_their_own() -> None:
    names = [one["operationId"] for path in document(ROUTES)["paths"].values() for one in path.values()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_what_is_described_holds_for_whatever_is_sent(
    front: Front, store_url: str, role: str, tmp_path: Path
) -> None:
    if not store_url.startswith("sqlite"):
        pytest.skip("what is described does not depend on the store")
    await front.deliver()
    await front.park()
    async with served(front.app) as url:
        process = await asyncio.create_subprocess_exec(
            SCHEMATHESIS,
            *("--config-file", str(SETTINGS), "run", f"{url}/api/v1/openapi.json"),
            *("--header", f"Authorization: Bearer {front.tokens[role]}"),
            *("--checks", "all", "--seed", "1", "--no-color", *TRIED[role]),
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(280):
            said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-20_000:]
