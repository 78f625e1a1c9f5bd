"""The tokenizer of every search.

Stored texts and queries pass through the same function, so a search returns the same rows on every database: whole
words, case-insensitive, and every word of the query must occur.
"""

import re
import unicodedata

TOKEN_LENGTH_MAX = 64
"""Longer tokens are truncated to this many characters."""
TOKENS_MAX = 16
"""The most tokens that one query may have."""

_ASCII_TOKEN = re.compile("[a-z0-9]+")


def tokenize(text: str) -> tuple[str, ...]:
    """Split a text into distinct tokens (runs of letters, digits and combining marks), in order of appearance."""
    if text.isascii():
        found = _ASCII_TOKEN.findall(text.lower())
    else:
        # Case folding can undo the normalization, so normalize again: one spelling per word.
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        found = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded).split()
    return tuple(dict.fromkeys(word[:TOKEN_LENGTH_MAX] for word in found))
