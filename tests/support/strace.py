"""Processes whose system calls fail, or kill them, at a moment of the test's choice: strace does that from outside."""

import shutil
import subprocess
from functools import cache

import pytest

from support.need import cannot_have


def strace_with(*options: str) -> tuple[str, ...]:
    """The command to run a program under; skips where strace is not here or may not trace."""
    _need_strace()
    return ("strace", "-f", *options)


@cache
def _trouble() -> str | None:
    if shutil.which("strace") is None:
        return "no strace: install the package `strace` (see tools/strace)"
    tried = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else None


def _need_strace() -> None:
    trouble = _trouble()
    if trouble is not None and shutil.which("apt-get") and shutil.which("strace") is None:
        cannot_have(trouble)
    if trouble is not None:
        pytest.skip(trouble)
