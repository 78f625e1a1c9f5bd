"""One PostgreSQL server for a whole test session, shared by its workers.

Whoever needs it first starts a *keeper*: a process of its own that runs the server. Every user holds a shared lock on
the file ``users``; the keeper waits for the exclusive one. So it ends the server when the last user is gone, whether
that user finished or was killed, and nobody has to count.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.postgres import PostgresServer, PostgresUnavailable

READY_DEADLINE_S = 120.0


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The URL of the server that all users of ``folder`` share; it lives until the last of them leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users").open("a") as users:
        with (folder / "starting").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            # If a keeper is just ending the server, this waits until it has gone, and its answer with it.
            fcntl.flock(users, fcntl.LOCK_SH)
            answer = folder / "answer.json"
            if not answer.exists():
                _start_keeper(folder)
            found = json.loads(answer.read_text())
        if "error" in found:
            raise PostgresUnavailable(found["error"])
        yield found["url"]


def _start_keeper(folder: Path) -> None:
    tests = Path(__file__).resolve().parent.parent
    with (folder / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "support.shared_postgres", str(folder)],
            cwd=tests,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_DEADLINE_S
    while not (folder / "answer.json").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise PostgresUnavailable(f"the keeper gave no answer: {(folder / 'keeper.log').read_text()[-800:]}")
        time.sleep(0.02)


def _keep(folder: Path) -> None:
    """Run by the keeper's process: serve, answer, and wait until nobody is left."""
    answer = folder / "answer.json"
    try:
        with (
            PostgresServer(durable=os.environ.get("TEST_PG_DURABLE") == "1") as server,
            (folder / "users").open("a") as users,
        ):
            _write_whole(answer, {"url": server.url()})
            fcntl.flock(users, fcntl.LOCK_EX)
            answer.unlink()
            server.remove()
    except PostgresUnavailable as error:
        # This answer stays: the next one who asks would fare no better.
        _write_whole(answer, {"error": str(error)})


def _write_whole(path: Path, content: dict[str, str]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.rename(path)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
