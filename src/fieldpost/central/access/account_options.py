"""Settings of accounts: sessions and one-time links."""

from dataclasses import dataclass, fields
from datetime import timedelta

from fieldpost.core.errors import out_of_range

SECONDS_MAX = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """[accounts]"""

    session_idle_s: float = 2 * 3600.0
    """A session ends after this time without user activity; live updates of a page do not count."""
    session_s: float = 12 * 3600.0
    """A session ends after this time in any case."""
    link_s: float = 24 * 3600.0
    """How long a one-time link for choosing a password is valid."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) <= SECONDS_MAX:
                raise out_of_range(f"accounts.{field.name}", "must be greater than 0 and at most a year")
        if self.session_idle_s > self.session_s:
            raise out_of_range("accounts.session_idle_s", "must not be more than accounts.session_s")

    @property
    def session_idle(self) -> timedelta:
        return timedelta(seconds=self.session_idle_s)

    @property
    def session(self) -> timedelta:
        return timedelta(seconds=self.session_s)

    @property
    def link(self) -> timedelta:
        return timedelta(seconds=self.link_s)
