"""A demo folder from before the first release: removed after a yes on a terminal, else refused with the command."""

import fcntl
import os
import pty
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from sqlalchemy import text

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_engine
from fieldpost.central.store.schema.migrate import upgrade
from fieldpost.core.errors import ConfigError
from fieldpost.demo.old_data import offer_removal
from fieldpost.demo.scenario import SITES
from fieldpost.site.buffer.buffer import Buffer

OFFER = (
    "import sys, pathlib; from fieldpost.demo.old_data import offer_removal; offer_removal(pathlib.Path(sys.argv[1]))"
)


def demo_folder(folder: Path, revision: str) -> Path:
    (folder / "central").mkdir(parents=True)
    url = f"sqlite:///{folder / 'central' / 'central.db'}"
    upgrade(url)
    engine = sqlite_engine(parse_url(url))
    with engine.begin() as conn:
        conn.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})
    engine.dispose()
    return folder


def answer_on_a_terminal(folder: Path, answer: str) -> int:
    controller, terminal = pty.openpty()
    os.write(controller, f"{answer}\n".encode())
    try:
        return subprocess.run(
            [sys.executable, "-c", OFFER, str(folder)], stdin=terminal, stdout=terminal, check=False
        ).returncode
    finally:
        os.close(controller)
        os.close(terminal)


@pytest.mark.parametrize("revision", ["m0001", "m9999"])
def test_data_of_a_release_is_kept(tmp_path: Path, revision: str) -> None:
    offer_removal(tmp_path / "none")
    folder = demo_folder(tmp_path / "demo", revision)
    offer_removal(folder)
    assert (folder / "central" / "central.db").exists()


def test_without_a_terminal_the_command_that_removes_it_is_named(tmp_path: Path) -> None:
    folder = demo_folder(tmp_path / "my demo", "0009")
    with pytest.raises(ConfigError) as caught:
        offer_removal(folder)
    assert caught.value.code == "demo.unreleased"
    assert f"rm -r '{folder}'" in (caught.value.hint or "")
    assert folder.exists()


def test_the_buffer_of_a_site_may_be_too_old_too(tmp_path: Path) -> None:
    folder = demo_folder(tmp_path / "demo", "m0001")
    path = folder / SITES[0].name / "buffer.db"
    path.parent.mkdir()
    Buffer(path).close()
    offer_removal(folder)
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", 0)
    connection.close()
    with pytest.raises(ConfigError) as caught:
        offer_removal(folder)
    assert caught.value.code == "demo.unreleased"


def test_on_a_terminal_a_yes_removes_it_and_anything_else_does_not(tmp_path: Path) -> None:
    folder = demo_folder(tmp_path / "demo", "0009")
    assert answer_on_a_terminal(folder, "no") != 0
    assert folder.exists()
    with (folder / "demo.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert answer_on_a_terminal(folder, "y") != 0, "another demo works there"
    assert folder.exists()
    assert answer_on_a_terminal(folder, "y") == 0
    assert not folder.exists()
