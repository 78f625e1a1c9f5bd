"""The keys that secrets are kept under, and how a secret is sealed and opened.

Theory of operation. A secret leaves this process only sealed: AES-256-GCM under a key from outside the database, with a
fresh nonce, bound to the channel and the setting it belongs to, so that a sealed text moved to another place does not
open. The text names its key by an id that follows from the key, hence several keys can be in use: the first of the ring
seals, all of them open. To change keys, put a new one first, seal everything anew (`fieldpost secrets rotate`), and
take the old one away.

What must hold: without the right key a secret is *unreadable*, which is trouble of its channel and of nothing else; no
error of this module tells anything of a secret but where it stands and the id of its key.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fieldpost.core.errors import ConfigError, Conflict, Unavailable
from fieldpost.core.lists import Channel
from fieldpost.core.secret import Scrubber, Secret

KEY_BYTES = 32
KEYS_MAX = 16
NONCE_BYTES = 12
_FORMAT = "1"
_KNOWN_MAX = 1000


class SecretUnreadable(Unavailable):
    """A sealed secret that none of the keys opens."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key; its id tells nothing of it."""

    key_id: str
    cipher: AESGCM = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> "SecretKey":
        return cls(hashlib.sha256(b"fieldpost secret key id\x00" + raw).hexdigest()[:12], AESGCM(raw))


@dataclass(frozen=True, slots=True)
class Opened:
    """A channel's settings with its secrets opened, and what takes these out of any text."""

    settings: Mapping[str, object]
    scrub: Scrubber


class Keyring:
    """The keys that this process was given; none at all is lawful, and then no secret can be sealed or opened."""

    def __init__(self, keys: Sequence[SecretKey] = (), trouble: str | None = None) -> None:
        """`trouble` says why there are no keys, or what else is wrong with them, for whoever looks."""
        self._keys = {key.key_id: key for key in keys}
        self._first = keys[0] if keys else None
        self.trouble = trouble
        self._known: dict[Secret, None] = {}
        self._scrub = Scrubber()

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The first one seals."""
        return tuple(self._keys)

    def require_key(self) -> SecretKey:
        """The key that seals, or Conflict saying why there is none."""
        if self._first is None:
            raise Conflict(
                "secret.no_key",
                f"this node has no key to keep secrets under: {self.trouble or 'none was given'}",
                hint="see `[secrets]` in the settings, then start central again",
            )
        return self._first

    def seal(self, secret: Secret, channel_name: str, name: str, nonce: bytes) -> str:
        """The secret as it may be stored. A nonce is used once."""
        key = self.require_key()
        self._learn(secret)
        sealed = nonce + key.cipher.encrypt(nonce, secret.reveal().encode(), _place(channel_name, name))
        return f"{_FORMAT}.{key.key_id}.{base64.urlsafe_b64encode(sealed).decode('ascii')}"

    def open(self, sealed: object, channel_name: str, name: str) -> Secret:
        """The secret again. Raises SecretUnreadable."""
        key_id = key_id_of(sealed)
        key = self._keys.get(key_id or "")
        if key_id is None:
            raise _unreadable(channel_name, name, "what is stored is no sealed secret")
        if key is None:
            mine = f"this node has {', '.join(self._keys)}" if self._keys else f"this node has none: {self.trouble}"
            raise _unreadable(channel_name, name, f"it was sealed with the key {key_id}; {mine}")
        try:
            data = base64.urlsafe_b64decode(str(sealed).rpartition(".")[2])
            plain = key.cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _place(channel_name, name)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise _unreadable(channel_name, name, "what is stored was damaged, or belongs somewhere else") from None
        secret = Secret(plain)
        self._learn(secret)
        return secret

    def open_channel(self, channel: Channel) -> Opened:
        """The channel's settings with its secrets among them. Raises SecretUnreadable."""
        opened = {name: self.open(sealed, channel.name, name) for name, sealed in channel.secrets.items()}
        return Opened({**channel.settings, **opened}, Scrubber(opened.values()))

    def trouble_of(self, channel: Channel) -> str | None:
        """Why the channel's secrets cannot be read; None when they can."""
        try:
            self.open_channel(channel)
        except SecretUnreadable as error:
            return error.message
        return None

    def scrub(self, text: str) -> str:
        """The text without any secret that this process has seen: the last guard of what is logged."""
        return self._scrub(text)

    def _learn(self, secret: Secret) -> None:
        if secret in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[secret] = None
        self._scrub = Scrubber(self._known)


def key_id_of(sealed: object) -> str | None:
    """The id of the key that it was sealed with; None for what is no sealed secret."""
    found = _SEALED.fullmatch(sealed) if isinstance(sealed, str) else None
    return found[1] if found else None


def parse_keys(text: str, where: str) -> list[SecretKey]:
    """The keys of a file or a variable: one a line or between commas, the first one seals. Raises ConfigError."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = [word for line in lines for word in re.split(r"[\s,]+", line) if word]
    if not words:
        raise ConfigError("secrets.key", f"{where} holds no key")
    if len(words) > KEYS_MAX:
        raise ConfigError("secrets.key", f"{where} holds more than {KEYS_MAX} keys")
    keys = []
    for number, word in enumerate(words, 1):
        try:
            raw = base64.b64decode(word.translate(_URLSAFE), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != KEY_BYTES:
            raise ConfigError("secrets.key", f"key {number} of {where} is not {KEY_BYTES} bytes in base64")
        keys.append(SecretKey.of(raw))
    return keys


def key_text(raw: bytes) -> str:
    """A key as it stands in a file."""
    return base64.urlsafe_b64encode(raw).decode("ascii")


_SEALED = re.compile(rf"{_FORMAT}\.([0-9a-f]{{12}})\.[A-Za-z0-9_-]+=*", re.ASCII)
_URLSAFE = str.maketrans("-_", "+/")


def _place(channel_name: str, name: str) -> bytes:
    """What a sealed text is bound to. Lengths go first, so that no two places look alike."""
    parts = [b"fieldpost channel", channel_name.encode(), name.encode()]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _unreadable(channel_name: str, name: str, why: str) -> SecretUnreadable:
    return SecretUnreadable("secret.unreadable", f"the {name} of channel {channel_name!r} cannot be read: {why}")
