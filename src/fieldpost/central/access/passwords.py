"""Password hashing and checking; a check takes the same time whether or not the user exists."""

import asyncio
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from fieldpost.core.login import PASSWORD_BYTES_MAX

HASHES_MAX = 2
"""How many hashes run at once: each needs 64 MiB for a moment."""


class Passwords:
    """The password hasher of a process."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._hashing = asyncio.Semaphore(HASHES_MAX)
        self._dummy_hash: str | None = None

    async def hash(self, password: str) -> str:
        async with self._hashing:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def matches(self, stored: str | None, password: str) -> bool:
        """Whether this is the password of that hash; without a hash always False, after the same time."""
        if len(password.encode("utf-8", "replace")) > PASSWORD_BYTES_MAX:
            return False
        if self._dummy_hash is None:
            self._dummy_hash = await self.hash(secrets.token_urlsafe())
        async with self._hashing:
            is_right = await asyncio.to_thread(self._verify, stored or self._dummy_hash, password)
        return is_right and stored is not None

    def _verify(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password.encode("utf-8", "replace"))
        except (VerificationError, InvalidHashError):
            return False


SYLLABLES = 12
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeio"


def readable_password(entropy: bytes) -> str:
    """Syllables that can be read out over a telephone, six bits each: `dova-lite-ramu-…`."""
    syllables = [_CONSONANTS[byte & 15] + _VOWELS[byte >> 4 & 3] for byte in entropy]
    return "-".join(first + second for first, second in zip(syllables[::2], syllables[1::2], strict=True))
