"""The examples run unchanged."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from fieldpost.testing import HttpServerThread
from support.need import cannot_have
from support.plant import running_plant
from support.running_central import MAIN
from support.site_folders import make_site


def test_the_site_script_sends_without_an_agent_and_prints_the_id(project: Path, tmp_path: Path) -> None:
    with make_site(tmp_path / "fieldpost-demo/plant-north") as site:
        command = [sys.executable, str(project / "examples/site_script.py")]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
        assert site.notify.status(printed).status == "forwarding"


@pytest.mark.req("ADP-01", "ADP-15")
def test_the_third_party_adapter_passes_the_contract_and_is_found_once_installed(project: Path, tmp_path: Path) -> None:
    example = project / "examples/gotify_adapter"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(example)]
    ran = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # Installed the way pip does it, but outside this environment.
    installed = tmp_path / "installed"
    info = installed / "fieldpost_gotify-0.1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(example / "fieldpost_gotify.py", installed)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fieldpost-gotify\nVersion: 0.1.0\n")
    declared = tomllib.loads((example / "pyproject.toml").read_text())["project"]["entry-points"]["fieldpost.adapters"]
    lines = "".join(f"{name} = {value}\n" for name, value in declared.items())
    (info / "entry_points.txt").write_text(f"[fieldpost.adapters]\n{lines}")
    list_types = "from fieldpost.central.adapters import load; print(sorted(load()))"
    found = subprocess.run(
        [sys.executable, "-c", list_types],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'email'" in found.stdout
    assert "'gotify'" in found.stdout


@pytest.mark.req("API-07", "API-08")
def test_the_example_with_calls_and_writes_does_them_and_keeps_what_cannot_be_done_now(
    project: Path, tmp_path: Path
) -> None:
    example = project / "examples/cached_calls"
    folder = tmp_path / "site"
    make_site(folder).close()
    (folder / "erp.secret").write_text("Bearer of-the-example\n")
    (folder / "erp.secret").chmod(0o600)
    with closing(apsw.Connection(str(folder / "plant.db"))) as plant:
        plant.execute((example / "plant.sql").read_text())
    command = [sys.executable, str(example / "end_of_shift.py"), str(folder)]
    with HttpServerThread() as server:
        defined = (example / "site.toml").read_text()
        (folder / "site.toml").write_text(defined.replace("http://127.0.0.1:8080", server.url))
        server.on("DELETE", "/api/orders/unheard-of").answer(404, "no such order")
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert [line.strip() for line in ran.stdout.splitlines()] == [
            "erp POST /orders delivered",
            "plant delivered",
            "refused: 404 erp answered 404 Not Found: no such order",
        ]
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer of-the-example"}
        # The ERP and the database are unavailable: the script neither loses data nor blocks.
        server.stop()
        (folder / "plant.db").rename(folder / "away.db")
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        order, count = ran.stdout.splitlines()[:2]
        assert order.strip() == "erp POST /orders delivered"  # same key, same order
        assert count.startswith("plant retrying plant:")
    with closing(apsw.Connection(str(folder / "away.db"))) as plant:
        assert plant.execute("SELECT unit, pieces FROM counts").fetchall() == [("press-2", 1170)]


@pytest.mark.req("API-01", "API-07")
def test_the_example_in_shell_and_curl_sends_calls_and_reads_the_log(project: Path, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        cannot_have("curl", "no curl: install the package `curl`")
    with running_plant(tmp_path / "plant") as plant:
        agent = subprocess.Popen([sys.executable, "-c", MAIN, "site", "--folder", plant.folder], stderr=subprocess.PIPE)
        try:
            assert agent.stderr is not None
            assert any(b"local.served" in line for line in agent.stderr), "the agent serves its local API"
            command = [str(project / "examples/site_curl.sh"), str(plant.folder)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        finally:
            agent.terminate()
            agent.communicate(timeout=30)
        assert ran.returncode == 0, ran.stderr
        sent, status, called, log = (json.loads(line) for line in ran.stdout.splitlines())
        assert plant.site._buffer.find(sent["notification_id"]) is not None
        assert (status["notification_id"], status["status"]) == (sent["notification_id"], "forwarding")
        assert (called["status"], called["target_summary"]) == ("delivered", "erp POST /orders")
        [request] = plant.server.received()
        assert json.loads(request.body) == {"part": "seal", "count": 2}
        assert called["call_id"] in {entry["message_id"] for entry in log["events"]}
