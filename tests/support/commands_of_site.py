"""`fieldpost` on a site's machine: as a process of its own, or within the test's, which is much quicker."""

import contextlib
import io
import os
import subprocess
import sys

from fieldpost.cli.main import main


def fieldpost(*arguments: object, given: bytes = b"", token: str | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end; nothing of the tests' own environment says which site or central is meant."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FIELDPOST_")}
    if token is not None:
        environment["FIELDPOST_SITE_TOKEN"] = token
    command = [sys.executable, "-c", "from fieldpost.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, env=environment, check=False, timeout=30)


def fieldpost_here(*arguments: object, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """The same command in this process, up to its exit code."""
    streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (given, b"", b"")]
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["fieldpost", *map(str, arguments)]
    sys.stdin, sys.stdout, sys.stderr = streams
    code: object = None
    try:
        with contextlib.suppress(SystemExit):
            try:
                main()
            except SystemExit as end:
                code = end.code
                raise
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before
    written = []
    for stream in streams[1:]:
        stream.flush()
        written.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, int(str(code)), *written)
