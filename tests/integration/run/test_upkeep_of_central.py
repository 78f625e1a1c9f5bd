"""A real `fieldpost central`: what its settings say holds, and its figures and upkeep are there from the start."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.testing import ManualClock
from support.centre import open_centre
from support.postgres import PostgresServer
from support.running_central import RunningCentral, call, until

TOKEN_FILE = "api-token"


def token(node: RunningCentral) -> str:
    return (node.folder / TOKEN_FILE).read_text().strip()


async def metrics(node: RunningCentral) -> dict[str, float]:
    headers = {"Authorization": f"Bearer {token(node)}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{node.url}/metrics") as answer:
        assert answer.status == 200
        lines = [line.rpartition(" ") for line in (await answer.text()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


@pytest.mark.req("CFG-09", "CFG-12")
async def test_central_applies_the_sections_of_its_settings_file(sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    settings = "[dispatch]\ninterval_s = 3\n[watch]\nstuck_after_s = 120\ndelivered_window_s = 300\n"
    (folder / "fieldpost.toml").write_text(settings)
    node = RunningCentral(sqlite_url, folder)
    del node._environment["FIELDPOST_DISPATCH__INTERVAL_S"]
    async with node:
        told = await call(node, token(node), "GET", "kpis")
    assert told["thresholds"] == {"stuck_after_s": 120, "overdue_after_s": 6, "delivered_window_s": 300}


@pytest.mark.req("DEC-06", "DEC-07")
async def test_restarted_embedded_central_resumes_claimed_rows_at_once(sqlite_url: str, tmp_path: Path) -> None:
    """The claim of the dead process would last for an hour, but its lock is gone."""
    async with open_centre(sqlite_url, SystemClock()) as centre:
        sent = await centre.send("no-such-list")
        assert len(await centre.claim("dead", lease_s=3600)) == 1
    async with RunningCentral(sqlite_url, tmp_path / "data") as node:

        async def is_parked() -> bool:
            found = await call(node, token(node), "GET", f"notifications/{sent}")
            return bool(found["status"] == "parked")

        await until(is_parked, 20, "central to take it up")


@pytest.mark.req("DEC-06", "CFG-02", "DSP-11")
async def test_the_one_node_of_sqlite_leads_and_purges_at_once_after_a_crash_too(
    sqlite_url: str, tmp_path: Path
) -> None:
    """The leases of a killed process last; they bind nobody, since its lock is gone."""
    async with open_centre(sqlite_url, ManualClock()) as centre:  # a delivered row of January
        await centre.add_channel()
        await centre.add_list()
        await centre.send_many(3)
        await centre.deliver()
    keep = {"FIELDPOST_UPKEEP__LEASE_S": "3600", "FIELDPOST_UPKEEP__TERMINAL_RETENTION_DAYS": "30"}
    node = RunningCentral(sqlite_url, tmp_path / "data", environment=keep)
    async with node:
        (purged,) = await node.until_logged("purge.finished")
        assert (purged["level"], purged["notifications"], purged["failed"]) == ("info", 3, [])
        first = node.node_id
        await node.kill()
        await node.start()
        assert node.node_id != first
        await node.until_logged("leader.elected", 2)
        await node.until_logged("purge.finished", 2)
        told = await call(node, token(node), "GET", "nodes")
        assert [(n["node_id"], n["state"], n["is_leader"]) for n in told["nodes"]] == [
            (node.node_id, "running", True),
            (first, "stopped", False),
        ]


@pytest.mark.req("TOP-04")
async def test_a_running_node_counts_its_sweeps_and_is_ready(store_url: str, tmp_path: Path) -> None:
    async with RunningCentral(store_url, tmp_path / "data") as node:

        async def has_swept() -> dict[str, float] | None:
            found = await metrics(node)
            return found if found["fieldpost_sweep_seconds_count"] > 0 else None

        found = await until(has_swept, 20, "a sweep")
        assert found["fieldpost_store_up"] == 1
        assert found["fieldpost_queue_depth"] == 0
        assert found['fieldpost_nodes{state="running"}'] == 1
        await node.until_logged("leader.elected")
        async with aiohttp.ClientSession() as session, session.get(f"{node.url}/readyz") as answer:
            told = await answer.json()
        assert (answer.status, told["status"]) == (200, "ready")
        names = ["store", "migrations", "dispatcher", "leader"] + ["log"] * store_url.startswith("sqlite")
        assert {check["name"]: check["status"] for check in told["checks"]} == dict.fromkeys(names, "ok")


async def test_node_without_its_store_is_alive_and_not_ready_with_the_reason(
    pg_server: PostgresServer, tmp_path: Path
) -> None:
    async with RunningCentral(pg_server.url(), tmp_path / "data") as node:
        await asyncio.to_thread(pg_server.stop)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            async with session.get(f"{node.url}/healthz") as alive:
                assert alive.status == 200
            async with session.get(f"{node.url}/readyz") as ready:
                told = await ready.json()
        assert (ready.status, told["status"]) == (503, "not_ready")
        assert {c["name"]: c["status"] for c in told["checks"]} == {"store": "failing", "dispatcher": "ok"}
        await asyncio.to_thread(pg_server.start)


async def doctor(folder: Path, *arguments: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Its exit code, its verdicts by check, and all it said."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("fieldpost")),
        "doctor",
        "--json",
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode is not None
    told = json.loads(out)
    return process.returncode, {check["name"]: check["status"] for check in told["checks"]}, told


async def test_the_doctor_asks_a_running_embedded_central(sqlite_url: str, tmp_path: Path) -> None:
    async with RunningCentral(sqlite_url, tmp_path / "data") as node:
        await node.until_logged("leader.elected")
        port = node.url.rpartition(":")[2]
        code, found, told = await doctor(tmp_path, "--store", sqlite_url, "--port", port)
        assert (code, told["status"]) == (0, "ok"), told
        names = [f"central's {name}" for name in ("store", "migrations", "dispatcher", "leader", "log")]
        assert found == dict.fromkeys(("disk", "store", *names), "ok")
        assert str(node.pid) in told["checks"][1]["detail"]
        code, found, _ = await doctor(tmp_path, "--store", sqlite_url, "--port", "1")
        assert (code, found["central"]) == (9, "failing")


async def test_doctor_checks_a_store_without_a_running_central(sqlite_url: str, tmp_path: Path) -> None:
    code, found, told = await doctor(tmp_path, "--store", sqlite_url)
    assert (code, told["status"]) == (0, "warning")
    assert found == {"disk": "ok", "store": "ok", "clock": "ok", "migrations": "ok", "nodes": "warning", "audit": "ok"}


async def test_doctor_names_missing_parts(tmp_path: Path) -> None:
    code, found, told = await doctor(tmp_path, "--folder", str(tmp_path / "nowhere"))
    assert (code, found, told["status"]) == (9, {"disk": "ok", "store": "failing"}, "failing")
    assert "fieldpost central" in told["checks"][1]["detail"]
    assert not (tmp_path / "nowhere").exists(), "it changes nothing"


async def test_doctor_checks_postgresql_beside_running_nodes(pg_url: str, tmp_path: Path) -> None:
    async with RunningCentral(pg_url, tmp_path / "data") as node:
        await node.until_logged("audit.sealed")
        (tmp_path / "data").chmod(0o700)
        code, found, told = await doctor(tmp_path, "--store", pg_url, "--folder", str(tmp_path / "data"))
        assert (code, told["status"]) == (0, "ok"), told
        assert found == dict.fromkeys(("disk", "store", "clock", "migrations", "nodes", "leader", "audit"), "ok")
        assert "sealed entries are unchanged" in told["checks"][-1]["detail"]
        await forge_audit(pg_url)
        code, found, told = await doctor(tmp_path, "--store", pg_url, "--folder", str(tmp_path / "data"))
    assert (code, found["audit"]) == (9, "failing")
    assert "entry 1 differs from what batch 1 sealed" in told["checks"][-1]["detail"]


async def forge_audit(url: str) -> None:
    """Edit the first audit entry, as somebody with the database's password can."""

    def forge(conn: Connection) -> None:
        conn.execute(text("alter table audit disable trigger user"))
        conn.execute(text("update audit set actor = 'bob' where sequence = 1"))

    store = open_store(url)
    await store.write(forge)
    await store.close()


async def test_the_doctor_finds_a_store_without_tables_and_one_that_is_down(empty_pg_url: str, tmp_path: Path) -> None:
    code, found, _ = await doctor(tmp_path, "--store", empty_pg_url)
    assert (code, found["store"], found["migrations"]) == (9, "ok", "failing")
    code, found, told = await doctor(tmp_path, "--store", f"postgresql://postgres@/x?host={tmp_path}")
    assert (code, found["store"]) == (9, "failing")
    assert "is unavailable" in told["checks"][1]["detail"]
