"""Tokens of sites, users and programs: random, shown once, stored hashed, found by a public prefix.

The form is `fp_<kind>_<prefix>_<secret>`: the kind identifies a token found in a log, the prefix finds the row, and
only the SHA-256 of the whole token is stored. 256 random bits need no slow hash.
"""

import hmac
import re
from base64 import b32encode
from dataclasses import dataclass, field
from hashlib import sha256

ENTROPY_BYTES = 40
_PREFIX = re.compile("[a-z2-7]{12}")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token; `text` is shown once and never stored."""

    prefix: str
    digest: bytes
    text: str = field(repr=False)


def issue(kind: str, entropy: bytes) -> IssuedToken:
    """Create a token of a kind (`site`, `api`, `session`, `join`) from 40 bytes of entropy."""
    letters = b32encode(entropy[:ENTROPY_BYTES]).decode().lower().rstrip("=")
    prefix, secret = letters[:12], letters[12:]
    text = f"fp_{kind}_{prefix}_{secret}"
    return IssuedToken(prefix, digest(text), text)


def of_text(text: str) -> IssuedToken:
    """A token that was issued before, of any kind."""
    return IssuedToken(text.split("_")[2], digest(text), text)


def prefix_of(text: str, kind: str) -> str | None:
    """The public prefix of a token, or None if the text is not a token of this kind."""
    parts = text.split("_")
    return parts[2] if len(parts) == 4 and parts[0] == "fp" and parts[1] == kind and len(text) < 200 else None


def is_prefix(text: str) -> bool:
    """Whether the text has the form of a public prefix."""
    return _PREFIX.fullmatch(text) is not None


def matches(text: str, stored: bytes) -> bool:
    """Compare a token with a stored digest, in constant time."""
    return hmac.compare_digest(digest(text), stored)


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()
