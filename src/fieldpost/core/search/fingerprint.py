"""Fingerprints that group equal errors of different notifications.

Addresses, ids, times, IP addresses and numbers are replaced by placeholders. Reply codes (`550 5.1.1`, `HTTP 404`)
stay, since people sort by them. If an error names several targets, each distinct error counts once, and their number
does not matter.
"""

import re
from functools import lru_cache
from hashlib import sha256

KEY_LENGTH = 12
FINGERPRINT_LENGTH_MAX = 300

_KEY = re.compile(f"[0-9a-f]{{{KEY_LENGTH}}}")
_TARGETS = re.compile(r"^\d+ targets \([^()]*\)(?=: |$)")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s;,'\"<>)]+", re.IGNORECASE)
_ADDRESS = re.compile(r"<?[^\s<>@;,:'\"()=]{1,64}@[^\s<>@;,:'\"()]*[^\s<>@;,:'\"().]>?")
# Longer patterns first, so that no part of a match is mistaken for something else.
_PLACEHOLDERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\[[0-9a-f:.]*:[0-9a-f:.]*\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b", re.IGNORECASE), "<ip>"),
    (re.compile(r"\b(?=[a-z_-]{0,40}\d)(?=\d{0,40}[a-z_-])[a-z0-9_-]{8,64}\b", re.IGNORECASE), "<id>"),
)
# A reply code is at the start, after a colon or a protocol name, or before its enhanced code.
_CODE = re.compile(
    r"(?:^|(?<=: )|\bHTTP )[2-5]\d\d(?:[ -][245]\.\d{1,3}\.\d{1,3})?(?![\d.])"
    r"|\b[245]\d\d[ -][245]\.\d{1,3}\.\d{1,3}\b"
)
_NUMBER = re.compile(r"\d+([.,:]\d+)*")


@lru_cache(maxsize=4096)
def fingerprint(error: str) -> str:
    """The error text without details of a single notification; equal errors have equal fingerprints."""
    parts = dict.fromkeys(_general(part) for part in error.split("; "))
    return "; ".join(part for part in parts if part)[:FINGERPRINT_LENGTH_MAX]


def fingerprint_key(error: str) -> str:
    """A short hash of the fingerprint, for URLs and the command line."""
    return sha256(fingerprint(error).encode()).hexdigest()[:KEY_LENGTH]


def is_fingerprint_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def _general(part: str) -> str:
    text = _TARGETS.sub("<address>", " ".join(part.split()))
    if "://" in text:
        text = _URL.sub("<url>", text)
    if "@" in text:
        text = _ADDRESS.sub("<address>", text)
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    pieces = []
    end = 0
    for code in _CODE.finditer(text):
        pieces += [_NUMBER.sub("#", text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _NUMBER.sub("#", text[end:])])
