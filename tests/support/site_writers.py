"""Programs that write a site's buffer, in this process and in others."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from fieldpost.core.ids import new_id
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.buffer import Buffer

MANY = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(lambda _: add(buffer), range(60)))
buffer.close()
"""

ENDLESS = """
import os, sys, threading
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
def work():
    while True:
        os.write(1, add(buffer).encode() + b"\\n")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
work()
"""

TWO = """
import os, sys
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
for _ in range(2):
    add(buffer)
    os.write(1, b"added\\n")
"""

SUBMIT = """
import os, sys
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
os.write(1, add(buffer, sys.argv[2]).encode())
buffer.close()
"""

STUBBORN = """
import sys
from pathlib import Path
from fieldpost.core.errors import Unavailable
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
for _ in range(20):
    try:
        print(add(buffer), flush=True)
    except Unavailable as error:
        print(error.code, flush=True)
"""

KEYED = """
import os, sys
from pathlib import Path
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.ids import new_id
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.keys import key_for
buffer, now = Buffer(Path(sys.argv[1])), SystemClock().now()
for _ in range(20):
    try:
        added = buffer.add(new_id(now, os.urandom(10)), "{}", to_microseconds(now), key_for("pump-3", "{}"))
        print(added, flush=True)
        break
    except Unavailable as error:
        print(error.code, flush=True)
"""

READ = """
import sys
from pathlib import Path
from fieldpost.site.buffer.connection import connect
connection = connect(Path(sys.argv[1]))
assert connection.pragma("integrity_check") == "ok"
print(*(row[0] for row in connection.execute("SELECT message_id FROM messages")))
"""


def add(buffer: Buffer, payload: str = "{}", message_id: str | None = None, now: datetime | None = None) -> str:
    """Put one notification into the buffer; its id."""
    now = now or datetime.now(UTC)
    message_id = message_id or new_id(now, os.urandom(10))
    buffer.add(message_id=message_id, payload=payload, created_at=to_microseconds(now))
    return message_id


def start(
    program: str, *arguments: object, before: tuple[str, ...] = (), stdin: int | None = None
) -> "subprocess.Popen[str]":
    """A process of its own; `before` is a command to run it under."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
    command = [*before, sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, env=environment)


def ids_in(path: Path) -> set[str]:
    """What lies in the buffer, read by a process of its own, as another program would."""
    reader = start(READ, path)
    output, _ = reader.communicate()
    assert reader.returncode == 0
    return set(output.split())


def until(holds: Callable[[], bool], timeout_s: float = 30) -> None:
    """Return as soon as this holds; for what another thread or process does and does not tell."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.002)
