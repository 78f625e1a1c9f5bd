"""Fitting a text to the limit of a channel type.

A message too long for its type is shortened here and nowhere else: never rejected, never left to the provider. The body
is cut after a whole character and its end is marked; the subject stays, and so does everything else that the adapter
composes, such as id and link. Only if the message is too long without any body is the subject cut as well.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

MARK = "…"
_ZERO_WIDTH_JOINER = "\u200d"
_REGIONAL = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)

MessageT = TypeVar("MessageT")


@dataclass(frozen=True, slots=True)
class Fitted(Generic[MessageT]):
    """A message within its limit."""

    message: MessageT
    truncated_to: int | None
    """How many characters of subject and body it has; None if both are whole."""


def fit(
    subject: str,
    body: str,
    compose: Callable[[str, str], MessageT],
    size: Callable[[MessageT], int],
    size_max: int,
    *,
    mark: str = MARK,
) -> Fitted[MessageT]:
    """Compose the longest message of at most `size_max`.

    `compose` makes the message from subject and body, with id and link. `size` measures it: `in_bytes`,
    `in_utf16_units`, `len`, or any function that grows with the text.
    """
    whole = compose(subject, body)
    if size(whole) <= size_max:
        return Fitted(whole, None)
    if size(compose(subject, "")) <= size_max:
        body = _longest(body, lambda text: size(compose(subject, text)) <= size_max, mark)
    else:
        body = ""
        subject = _longest(subject, lambda text: size(compose(text, "")) <= size_max, mark)
    return Fitted(compose(subject, body), len(subject) + len(body))


def fit_text(text: str, size: Callable[[str], int], size_max: int, *, mark: str = MARK) -> str:
    """The longest beginning of a single text of at most `size_max`, with its end marked if it was cut."""
    return text if size(text) <= size_max else _longest(text, lambda cut: size(cut) <= size_max, mark)


def in_bytes(text: str) -> int:
    """The size in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def in_utf16_units(text: str) -> int:
    """The size in UTF-16 code units, as JavaScript and Telegram count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _longest(text: str, fits: Callable[[str], bool], mark: str) -> str:
    """The longest marked beginning of the text that fits, cut between characters; empty if none fits."""
    # Gallop before bisecting: most limits are far below the 256 KiB that a body may have.
    low, high = 0, 64
    while high < len(text) and fits(text[:high] + mark):
        low, high = high, high * 4
    high = min(high, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle] + mark) else (low, middle - 1)
    while low > 0 and not _is_boundary(text, low):
        low -= 1
    kept = text[:low].rstrip()
    return kept + mark if fits(kept + mark) else ""


def _is_boundary(text: str, at: int) -> bool:
    """Whether a cut here leaves whole characters: no accent, joined emoji or flag is taken apart."""
    if at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if _ZERO_WIDTH_JOINER in (before, after) or unicodedata.category(after) in ("Mn", "Mc", "Me"):
        return False
    if ord(after) in _SKIN_TONES or (before == "\r" and after == "\n"):
        return False
    if ord(after) in _REGIONAL:
        start = at
        while start > 0 and ord(text[start - 1]) in _REGIONAL:
            start -= 1
        return (at - start) % 2 == 0
    return True
