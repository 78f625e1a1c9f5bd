"""`--watch`: look again and again until what one waits for has come."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fieldpost.clock import SystemClock

LOOK_EVERY_S = 1.0

WatchOption = Annotated[
    bool, typer.Option("--watch", help="Wait until nothing more happens to it by itself; tell each change on stderr.")
]


def watch(look: Callable[[], dict[str, Any]], is_over: Callable[[dict[str, Any]], bool], word: str) -> dict[str, Any]:
    """What is seen once it is over. Each new value of the field `word` is told on the way."""
    clock = SystemClock()
    told = None
    while True:
        found = look()
        if found[word] != told:
            told = found[word]
            print(f"{clock.now():%H:%M:%S}  {told}", file=sys.stderr, flush=True)
        if is_over(found):
            return found
        clock.pause(LOOK_EVERY_S)
