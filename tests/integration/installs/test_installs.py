"""The install variants: our wheel and the pinned wheels, without a network, in fresh environments.

`make setup` downloads the pinned wheels into build/wheels.
"""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fieldpost.cli.main import CENTRAL_PACKAGES
from support.need import cannot_have

VARIANTS = ("base", "central", "site-postgresql", "relay-postgresql", "relay-mariadb", "apprise")
INSTALLED_MB_MAX = 60
IDLE_AGENT_MB_MAX = 50
WAIT_S = 30.0
SITE_TOML = """
[database.plant]
url = "postgresql://writer@127.0.0.1:1/plant"

[database.plant.statements]
count = "INSERT INTO counts (unit) VALUES (:unit)"
"""


@pytest.fixture(scope="module")
def dist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel and sdist, built without warnings."""
    folder = tmp_path_factory.mktemp("dist")
    built = run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=project)
    assert "warn" not in (built.stdout + built.stderr).lower()
    assert sorted(file.suffix for file in folder.iterdir()) == [".gz", ".whl"]
    return folder


@pytest.fixture(scope="module")
def environments(project: Path, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one environment per variant."""
    wheels = project / "build/wheels"
    if not (wheels / "pins.txt").exists():
        cannot_have("wheels", "the pinned wheels are not in build/wheels: run `make setup` with a package registry")
    folder = tmp_path_factory.mktemp("environments")
    uv = Path(sys.executable).with_name("uv")
    for variant in VARIANTS:
        run(sys.executable, "-m", "venv", "--without-pip", folder / variant)
        python = folder / variant / "bin/python"
        compiling = ["--compile-bytecode"] if variant == "base" else []  # it counts for the size of the base
        installer = [uv, "pip", "install", "--refresh-package", "fieldpost", *compiling, "--python", python]
        if not uv.exists():
            installer = [sys.executable, "-m", "pip", "--python", python, "install"]
        name = "fieldpost" if variant == "base" else f"fieldpost[{variant}]"
        pins = project / f"requirements/{variant}.txt"
        run(*installer, "-q", "--no-index", "--find-links", wheels, "--find-links", dist, "-c", pins, name)
    yield folder
    shutil.rmtree(folder)


def run(
    *command: object, cwd: Path | None = None, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a clean environment; it must exit with this code."""
    given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "COLUMNS": "200"} | environment
    arguments = [str(part) for part in command]
    result = subprocess.run(arguments, cwd=cwd, env=given, capture_output=True, text=True, check=False)
    assert result.returncode == code, f"{arguments}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def test_base_install_is_small_and_holds_nothing_of_central(environments: Path) -> None:
    (packages,) = (environments / "base/lib").glob("python*/site-packages")
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    assert size < INSTALLED_MB_MAX * 1e6, f"{size / 1e6:.0f} MB"
    assert [name for name in CENTRAL_PACKAGES if (packages / name).exists()] == []


LOADED = "from fieldpost.central import adapters; print(*adapters.load())"


def test_apprise_needs_its_extra(environments: Path) -> None:
    with_extra, without = (
        run(environments / variant / "bin/python", "-c", LOADED) for variant in ("apprise", "central")
    )
    assert "apprise" in with_extra.stdout.split()
    assert "apprise" not in without.stdout.split()
    assert "email" in without.stdout.split()
    assert "Traceback" not in without.stdout + without.stderr


@pytest.mark.parametrize("arguments", [("central",), ("migrate",), ("doctor",), ("demo",), ("secrets", "new-key")])
def test_command_without_its_extra_prints_the_install_line(
    environments: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = run(environments / "base/bin/fieldpost", *arguments, cwd=tmp_path, code=8)
    assert 'pip install "fieldpost[central]"' in result.stderr
    assert result.stderr.count("\n") == 1


def test_site_of_the_base_install_sends_to_central_of_the_central_install(environments: Path, tmp_path: Path) -> None:
    base, central = (environments / variant / "bin/fieldpost" for variant in ("base", "central"))
    with (tmp_path / "central.log").open("wb") as log:
        server = subprocess.Popen(
            [central, "central", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    agent = None
    try:
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("Central serves at ").strip()
        assert url.startswith("http://"), (tmp_path / "central.log").read_text()
        while "API token" not in server.stdout.readline():
            assert server.poll() is None
        assert "No lists yet" in run(central, "lists", "list", "--url", url, cwd=tmp_path).stdout
        added = run(base, "--json", "sites", "add", "north", FIELDPOST_URL=url, cwd=tmp_path)
        invitation = f"{json.loads(added.stdout)['code']}@{url}"
        run(base, "site", "join", invitation, "--folder", "north", cwd=tmp_path)
        agent = subprocess.Popen([base, "site", "--folder", "north"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        sent = run(base, "send", "--folder", "north", "--to", "ops", "--subject", "s", "b", cwd=tmp_path).stdout.strip()
        assert wait_for(lambda: "parked" in run(base, "status", sent, "--folder", "north", cwd=tmp_path).stdout)
        assert resident_mb(agent.pid) < IDLE_AGENT_MB_MAX
    finally:
        for process in (agent, server):
            if process is not None:
                process.terminate()
                process.wait(30)


def test_writes_to_postgresql_need_the_extra_of_a_site(environments: Path, tmp_path: Path) -> None:
    base, extra = (environments / variant / "bin/fieldpost" for variant in ("base", "site-postgresql"))
    token = "fp_site_abcdefgh_" + "a" * 43
    arguments = ("site", "init", tmp_path / "north", "--name", "north", "--central", "http://127.0.0.1:1")
    run(base, *arguments, FIELDPOST_SITE_TOKEN=token)
    with (tmp_path / "north/site.toml").open("a") as file:
        file.write(SITE_TOML)
    doctor = ("site", "doctor", "--folder", tmp_path / "north")
    assert 'pip install "fieldpost[site-postgresql]"' in run(base, *doctor, code=9).stdout
    run(extra, *doctor)
    call_id = run(extra, "write", "plant", "count", "-p", "unit=p", "--folder", tmp_path / "north").stdout.strip()
    assert "Connection refused" in run(extra, "status", call_id, "--folder", tmp_path / "north").stdout


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_a_relay_needs_the_extra_of_its_database(environments: Path, tmp_path: Path, database: str) -> None:
    base, extra = (environments / variant / "bin/fieldpost" for variant in ("base", f"relay-{database}"))
    settings = relay_settings(f"{database}://app@127.0.0.1:1/app")
    missing = run(base, "relay", cwd=tmp_path, code=8, **settings)
    assert f'pip install "fieldpost[relay-{database}]"' in missing.stderr
    assert missing.stderr.count("\n") == 1
    found = run(extra, "outbox", "doctor", cwd=tmp_path, code=9, **settings)
    assert "Connection refused" in found.stdout, "the driver is there, the database is not"


def test_a_relay_on_sqlite_needs_nothing_but_the_base(environments: Path, tmp_path: Path) -> None:
    base = environments / "base/bin/fieldpost"
    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as app:
        app.executescript(run(base, "outbox", "ddl", "sqlite", cwd=tmp_path).stdout)
    settings = relay_settings(f"sqlite:///{tmp_path}/app.db")
    checks = json.loads(run(base, "--json", "outbox", "doctor", cwd=tmp_path, code=9, **settings).stdout)["checks"]
    assert {check["name"]: check["status"] for check in checks}["tables"] == "ok", checks


def relay_settings(database: str) -> dict[str, str]:
    return {
        "FIELDPOST_RELAY__DATABASE": database,
        "FIELDPOST_RELAY__URL": "http://127.0.0.1:1",
        "FIELDPOST_RELAY__TOKEN": "a token",
    }


def wait_for(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
