"""Processes whose system calls fail, or kill them, at a moment of the test's choice: strace does that from outside."""

from support.need import need


def strace_with(*options: str) -> tuple[str, ...]:
    """The command to run a program under; skips where strace is not here or may not trace."""
    need("ptrace")
    return ("strace", "-f", *options)
