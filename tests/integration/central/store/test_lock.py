"""The lock beside an embedded database: one process, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.core.errors import Conflict

HOLD = """
import sys
from fieldpost.central.store.engine.lock import StoreLock
with StoreLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.req("DEC-06")
def test_second_process_is_rejected_and_the_holder_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'central.db'}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Conflict) as caught, StoreLock(url):
            pass
        assert caught.value.code == "store.locked"
        assert str(holder.pid) in caught.value.message
        holder.kill()
        holder.wait()
        # A killed process leaves its file behind, but not its lock.
        with StoreLock(url):
            assert (tmp_path / "central.db.lock").read_text().strip() == str(os.getpid())


def test_the_lock_is_free_again_after_use(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'folder' / 'central.db'}"
    for _ in range(2):
        with StoreLock(url), pytest.raises(Conflict), StoreLock(url):
            pass


@pytest.mark.req("DEC-06")
def test_on_postgresql_many_processes_may_work(tmp_path: Path) -> None:
    url = "postgresql://postgres@localhost/fieldpost"
    with StoreLock(url), StoreLock(url):
        pass
