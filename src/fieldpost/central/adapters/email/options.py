"""Settings of email for the whole installation."""

from dataclasses import dataclass

from fieldpost.central.adapters.email.address import check_domain
from fieldpost.core.errors import InvalidInput, out_of_range

MESSAGE_ID_DOMAIN = "fieldpost.internal"
"""The domain of an adapter that was not given one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailOptions:
    """[email]"""

    message_id_domain: str = ""
    """The domain in the Message-ID of every mail. Used at the first start and kept in the database from then on, so
    that a notification always has the same Message-ID; empty for the host's name."""

    def __post_init__(self) -> None:
        try:
            domain = self.domain
        except InvalidInput as error:
            raise out_of_range("email.message_id_domain", error.message.removeprefix("message_id_domain ")) from None
        if domain and "." not in domain:
            raise out_of_range("email.message_id_domain", "must be a full domain such as alerts.example.org")

    @property
    def domain(self) -> str:
        """The domain as set, in its canonical form; empty if none is set."""
        return check_domain(self.message_id_domain, "message_id_domain") if self.message_id_domain else ""

    def first_domain(self, host: str, entropy: bytes) -> str:
        """The domain to keep at the first start: as set, else this host's full name, else a made-up one."""
        try:
            domain = self.domain or check_domain(host, "host")
        except InvalidInput:
            domain = ""
        return domain if "." in domain else f"{entropy.hex()}.{MESSAGE_ID_DOMAIN}"
