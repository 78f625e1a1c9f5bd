"""`fieldpost` on a site's machine: as a process of its own, or within the test's, which is much quicker."""

import os
import subprocess
import sys

from support import commands


def fieldpost(*arguments: object, given: bytes = b"", token: str | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end; nothing of the tests' own environment says which site or central is meant."""
    command = [sys.executable, "-c", "from fieldpost.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, env=_environ(token), check=False, timeout=30)


def fieldpost_here(
    *arguments: object, given: bytes = b"", token: str | None = None, **environ: str
) -> "subprocess.CompletedProcess[bytes]":
    """The same command in this process, up to its exit code."""
    return commands.fieldpost_here(*arguments, given=given, environ=_environ(token) | environ)


def _environ(token: str | None) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FIELDPOST_")}
    return environ | ({} if token is None else {"FIELDPOST_SITE_TOKEN": token})
