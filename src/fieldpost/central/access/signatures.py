"""Signed cookies: values that a browser keeps and central recognises, without storing them.

The keys are derived from the keys of secrets, so that all nodes accept each other's cookies. A process without such
keys signs with a random one and forgets its cookies when it ends.
"""

import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256

SEPARATOR = "~"
"""Not part of the values that are signed, and allowed in cookies."""


class CookieSigner:
    """Signs with the first key and verifies with all of them."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = list(keys) or [secrets.token_bytes(32)]

    def sign(self, purpose: str, value: str) -> str:
        return f"{value}{SEPARATOR}{_mac(self._keys[0], purpose, value)}"

    def verify(self, purpose: str, text: str) -> str | None:
        """The value, if it was signed for this purpose."""
        value, _, mac = text.rpartition(SEPARATOR)
        given = mac.encode("utf-8", "replace")
        is_good = [hmac.compare_digest(_mac(key, purpose, value).encode(), given) for key in self._keys]
        return value if any(is_good) else None


def _mac(key: bytes, purpose: str, value: str) -> str:
    return hmac.new(key, f"{purpose}\0{value}".encode("utf-8", "replace"), sha256).hexdigest()
