"""The keyring: seals and opens the secrets of channels, subscriptions and ZGW clients.

Theory of operation. A secret leaves this process only sealed: AES-256-GCM under a key from outside the database, with a
new nonce, bound to its channel and setting, so that a sealed text copied to another setting does not open. The text
names its key by an id derived from the key, so several keys can be in use: the first one seals, all of them open. To
change keys, put a new one first, seal all secrets again (`fieldpost secrets rotate`) and remove the old one.

Invariants: without the right key a secret is *unreadable*, which stops its channel and nothing else. Errors of this
module reveal only the channel and setting of a secret and the id of its key.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fieldpost.core.errors import ConfigError, Conflict, Unavailable
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.log_scrubber import LogScrubber
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.core.zgw.client import ZgwClient

KEY_BYTES = 32
KEYS_MAX = 16
NONCE_BYTES = 12
_FORMAT = "1"


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """The channel, subscription or client that a secret belongs to; a sealed secret opens for its owner only."""

    kind: Literal["channel", "list", "subscription", "ZGW client"]
    id: str
    name: str
    """For messages."""


WithSecrets = Channel | NotificationList | Subscription | ZgwClient


def owner_of(owner: WithSecrets) -> SecretOwner:
    match owner:
        case Subscription():
            return SecretOwner("subscription", owner.subscription_id, owner.name)
        case ZgwClient():
            return SecretOwner("ZGW client", owner.client_id, owner.client_id)
        case NotificationList():
            return SecretOwner("list", owner.name, owner.name)
        case Channel():
            return SecretOwner("channel", owner.name, owner.name)


class SecretUnreadable(Unavailable):
    """A sealed secret that none of the keys opens."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key; its id reveals nothing of it."""

    key_id: str
    cipher: AESGCM = field(repr=False)
    signer: Ed25519PrivateKey = field(repr=False)
    """Signs the seals of the audit log. Derived from the key, so that all nodes of a store have the same one."""
    cookie_key: bytes = field(repr=False)
    """Signs cookies; derived in the same way."""

    @classmethod
    def of(cls, raw: bytes) -> "SecretKey":
        key_id = hashlib.sha256(b"fieldpost secret key id\x00" + raw).hexdigest()[:12]
        seed = HKDF(SHA256(), 32, salt=None, info=b"fieldpost audit seals").derive(raw)
        cookie_key = HKDF(SHA256(), 32, salt=None, info=b"fieldpost cookies").derive(raw)
        return cls(key_id, AESGCM(raw), Ed25519PrivateKey.from_private_bytes(seed), cookie_key)

    @property
    def public_key(self) -> bytes:
        """Verifies what the signer signed."""
        return self.signer.public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True)
class Opened:
    """A channel's settings with its secrets opened, and the scrubber that removes these from texts."""

    settings: Mapping[str, object]
    scrub: Scrubber


class Keyring:
    """The keys of this process. Without any, no secret can be sealed or opened."""

    def __init__(self, keys: Sequence[SecretKey] = (), problem: str | None = None) -> None:
        """`problem` says why there are no keys, or what is wrong with them."""
        self._keys = {key.key_id: key for key in keys}
        self._first = keys[0] if keys else None
        self.problem = problem
        self._scrub = LogScrubber()

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys; the first key seals."""
        return tuple(self._keys)

    @property
    def public_keys(self) -> tuple[bytes, ...]:
        """The keys that verify seals; the first belongs to the key that signs now."""
        return tuple(key.public_key for key in self._keys.values())

    @property
    def cookie_keys(self) -> tuple[bytes, ...]:
        """The keys of signed cookies, in the same order."""
        return tuple(key.cookie_key for key in self._keys.values())

    def require_key(self) -> SecretKey:
        """The key that seals; Conflict with the reason if there is none."""
        if self._first is None:
            raise Conflict(
                "secret.no_key",
                f"this node has no key to seal secrets with: {self.problem or 'none is configured'}",
                hint="set `[secrets]` in the settings and restart central",
            )
        return self._first

    def seal(self, secret: Secret, owner: SecretOwner, name: str, nonce: bytes) -> str:
        """The secret in the form that is stored. Use each nonce once."""
        key = self.require_key()
        self._scrub.add(secret)
        sealed = nonce + key.cipher.encrypt(nonce, secret.reveal().encode(), _binding(owner, name))
        return f"{_FORMAT}.{key.key_id}.{base64.urlsafe_b64encode(sealed).decode('ascii')}"

    def open(self, sealed: object, owner: SecretOwner, name: str) -> Secret:
        """Open a sealed secret. Raises SecretUnreadable."""
        key_id = key_id_of(sealed)
        key = self._keys.get(key_id or "")
        if key_id is None:
            raise _unreadable(owner, name, "the stored text is not a sealed secret")
        if key is None:
            mine = f"this node has {', '.join(self._keys)}" if self._keys else f"this node has no keys: {self.problem}"
            raise _unreadable(owner, name, f"it was sealed with the key {key_id}; {mine}")
        try:
            data = base64.urlsafe_b64decode(str(sealed).rpartition(".")[2])
            plain = key.cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _binding(owner, name)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise _unreadable(owner, name, "the stored text is damaged, or belongs to another setting") from None
        secret = Secret(plain)
        self._scrub.add(secret)
        return secret

    def open_owner(self, owner: Channel | Subscription) -> Opened:
        """The settings of a channel or subscription, including its secrets. Raises SecretUnreadable."""
        bound = owner_of(owner)
        opened = {name: self.open(sealed, bound, name) for name, sealed in owner.secrets.items()}
        return Opened({**owner.settings, **opened}, Scrubber(opened.values()))

    def open_targets(self, list_name: str, sealed: Mapping[str, str]) -> dict[str, Secret]:
        """The secrets of targets of a list, by address. Raises SecretUnreadable."""
        owner = SecretOwner("list", list_name, list_name)
        return {address: self.open(text, owner, address) for address, text in sealed.items()}

    def problem_of(self, owner: WithSecrets) -> str | None:
        """Why the owner's secrets cannot be read; None when they can."""
        try:
            for name, sealed in owner.secrets.items():
                self.open(sealed, owner_of(owner), name)
        except SecretUnreadable as error:
            return error.message
        return None

    def scrub(self, text: str) -> str:
        """The text without any secret that this process has seen: the last guard of the logs."""
        return self._scrub(text)


def key_id_of(sealed: object) -> str | None:
    """The id of the key that sealed this text; None if it is not a sealed secret."""
    found = _SEALED.fullmatch(sealed) if isinstance(sealed, str) else None
    return found[1] if found else None


def parse_keys(text: str, where: str) -> list[SecretKey]:
    """Parse keys, separated by lines or commas; the first one seals. Raises ConfigError."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    items = [item for line in lines for item in re.split(r"[\s,]+", line) if item]
    if not items:
        raise ConfigError("secrets.key", f"{where} holds no key")
    if len(items) > KEYS_MAX:
        raise ConfigError("secrets.key", f"{where} holds more than {KEYS_MAX} keys")
    keys = []
    for number, item in enumerate(items, 1):
        try:
            raw = base64.b64decode(item.translate(_URLSAFE), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != KEY_BYTES:
            raise ConfigError("secrets.key", f"key {number} of {where} is not {KEY_BYTES} bytes in base64")
        keys.append(SecretKey.of(raw))
    return keys


def key_text(raw: bytes) -> str:
    """A key in the form of a key file."""
    return base64.urlsafe_b64encode(raw).decode("ascii")


_SEALED = re.compile(rf"{_FORMAT}\.([0-9a-f]{{12}})\.[A-Za-z0-9_-]+=*", re.ASCII)
_URLSAFE = str.maketrans("-_", "+/")


def _binding(owner: SecretOwner, name: str) -> bytes:
    """The channel and setting that a sealed text is bound to. Length prefixes keep any two apart."""
    parts = [f"fieldpost {owner.kind}".encode(), owner.id.encode(), name.encode()]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _unreadable(owner: SecretOwner, name: str, reason: str) -> SecretUnreadable:
    return SecretUnreadable("secret.unreadable", f"the {name} of {owner.kind} {owner.name!r} cannot be read: {reason}")
