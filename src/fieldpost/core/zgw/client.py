"""Clients of the ZGW API: applications that publish notifications or have abonnementen, known by a shared secret."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.errors import InvalidInput, parse_choice
from fieldpost.core.events.topic import check_topic_name
from fieldpost.core.text import check_label, check_path_name

CLIENT_ID_BYTES_MAX = 128
KANALEN_MAX = 1000
SECRET_BYTES_ADVISED = 32
"""HS256 is as strong as its secret: RFC 7518 asks for as many bytes as the hash has."""
OVERLAP = timedelta(hours=24)
"""How long the former secret is valid after a rotation."""


class ZgwScope(StrEnum):
    """The permissions of a client, by the last part of the standard's names: `notificaties.publiceren`."""

    PUBLISH = "publiceren"
    CONSUME = "consumeren"

    @property
    def full_name(self) -> str:
        return f"notificaties.{self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZgwClient:
    """A stored client."""

    client_id: str
    scopes: tuple[ZgwScope, ...]
    kanalen: tuple[str, ...] = ()
    """The kanalen that it may publish on; none stands for all."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted: `secret`, and after a rotation `former_secret`."""
    rotated_at: datetime | None = None
    created_at: datetime
    created_by: str
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    version: int = 1

    def may_publish_on(self, kanaal: str) -> bool:
        return not self.kanalen or kanaal in self.kanalen

    def valid_secrets(self, now: datetime) -> tuple[str, ...]:
        """The names of the secrets that sign tokens now: two for 24 hours after a rotation."""
        is_overlapping = self.rotated_at is not None and now - self.rotated_at < OVERLAP
        return ("secret", "former_secret") if is_overlapping and "former_secret" in self.secrets else ("secret",)


def check_client_id(value: object) -> str:
    """The id as given, or InvalidInput: it becomes part of a URL and the owner of subscriptions."""
    client_id = check_path_name(check_label(value, "client_id", CLIENT_ID_BYTES_MAX), "client_id")
    if "*" in client_id:
        raise InvalidInput("zgw_client.id", "client_id must not contain *", field="client_id")
    return client_id


def check_scopes(given: Sequence[str]) -> tuple[ZgwScope, ...]:
    """The scopes in a fixed order, or InvalidInput. The full names of the standard are accepted too."""
    named = {parse_choice(ZgwScope, text.removeprefix("notificaties."), "zgw_client.scope", "scopes") for text in given}
    if not named:
        raise InvalidInput(
            "zgw_client.scope", f"scopes must name at least one of {', '.join(ZgwScope)}", field="scopes"
        )
    return tuple(scope for scope in ZgwScope if scope in named)


def check_kanalen(given: Sequence[str]) -> tuple[str, ...]:
    """The names in alphabetical order, or InvalidInput."""
    if len(given) > KANALEN_MAX:
        raise InvalidInput("zgw_client.kanalen", f"kanalen must be at most {KANALEN_MAX} names", field="kanalen")
    return tuple(sorted({check_topic_name(name, "kanalen") for name in given}))
