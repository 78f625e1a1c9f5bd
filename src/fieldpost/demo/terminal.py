"""Terminal output of the demo: progress and events, one line each, coloured on a terminal."""

import os
import sys
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.text import Text

_STYLES = {"delivered": "green", "retrying": "yellow", "held": "yellow", "parked": "red"}
KEPT_MAX = 200
_SITE_WIDTH = 12
_WORD_WIDTH = 10


class Terminal:
    """Standard output. When the reader closes it, `on_gone` is called and further output is dropped."""

    def __init__(self, on_gone: Callable[[], None], *, is_brief: bool = False) -> None:
        """With `is_brief`, events are kept for `print_kept`."""
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._on_gone = on_gone
        self._is_brief = is_brief
        self._kept: deque[Text] = deque(maxlen=KEPT_MAX)

    def say(self, text: str = "", style: str = "") -> None:
        line = Text(_printable(text), style)
        line.highlight_regex(r"https?://\S+", "bold")
        self._print(line)

    def event(self, at: datetime, site: str, word: str, text: str) -> None:
        """Print an event of a notification. Times are UTC, as in the console."""
        line = Text(style="dim" if word == "sent" else "")
        line.append(f"{at:%H:%M:%S}Z  ", "dim")
        line.append(f"{_printable(site):<{_SITE_WIDTH}} ")
        line.append(f"{word:<{_WORD_WIDTH}} ", _STYLES.get(word, ""))
        line.append(_printable(text))
        if self._is_brief:
            self._kept.append(line)
        else:
            self._print(line)

    def print_kept(self) -> None:
        for line in self._kept:
            self._print(line)
        self._kept.clear()

    def _print(self, line: Text) -> None:
        try:
            self._console.print(line)
            self._console.file.flush()
        except UnicodeEncodeError:
            # A terminal without Unicode must not stop the demo.
            print(line.plain.encode("ascii", "replace").decode(), flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._on_gone()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of ending the process, as rich would."""
        raise BrokenPipeError


def _printable(text: str) -> str:
    """Replace characters that would move the cursor or change colours."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
