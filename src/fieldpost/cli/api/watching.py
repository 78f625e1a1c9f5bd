"""`--watch`: poll until the status can no longer change without an operator."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fieldpost.clock import SystemClock

POLL_S = 1.0

WatchOption = Annotated[bool, typer.Option("--watch", help="Wait for the final status; print each change to stderr.")]


def watch(read: Callable[[], dict[str, Any]], is_final: Callable[[dict[str, Any]], bool], field: str) -> dict[str, Any]:
    """Poll until `is_final`, and return the last answer. Each new value of `field` is printed to stderr."""
    clock = SystemClock()
    printed = None
    while True:
        found = read()
        if found[field] != printed:
            printed = found[field]
            print(f"{clock.now():%H:%M:%S}  {printed}", file=sys.stderr, flush=True)
        if is_final(found):
            return found
        clock.pause(POLL_S)
