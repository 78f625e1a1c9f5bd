"""`fieldpost` on a site's machine, as a process of its own."""

import os
import subprocess
import sys


def fieldpost(*arguments: object, given: bytes = b"", token: str | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end; nothing of the tests' own environment says which site or central is meant."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FIELDPOST_")}
    if token is not None:
        environment["FIELDPOST_SITE_TOKEN"] = token
    command = [sys.executable, "-c", "from fieldpost.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, env=environment, check=False, timeout=30)
