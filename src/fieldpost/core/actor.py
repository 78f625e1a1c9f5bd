"""Actors and roles. An actor is a person or a program; each role includes the permissions of the roles before it."""

from dataclasses import dataclass, field
from enum import StrEnum

from fieldpost.core.errors import Denied
from fieldpost.core.text import LABEL_BYTES_MAX, truncate

APP = "app:"
"""Prefix of the source name of an application; site names never start with it."""


class Role(StrEnum):
    VIEWER = "viewer"
    """Reads everything except bodies."""
    OPERATOR = "operator"
    """Also reads bodies; retries, discards, resets breakers."""
    ADMIN = "admin"
    """Also manages lists, channels, subscriptions, sites and users."""

    def includes(self, other: "Role") -> bool:
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Actor:
    """A user as recorded in audit entries, with the role that limits their actions."""

    name: str
    role: Role
    token: str | None = field(default=None, compare=False)
    """The name of the API token if a program acts for this user; None for the user's own session."""

    @property
    def source(self) -> str:
        """The source name, in place of a site, of notifications sent by an application: its token or user name."""
        return APP + truncate(self.token or self.name, LABEL_BYTES_MAX - len(APP))

    @property
    def may_read_bodies(self) -> bool:
        """Whether the actor may read notification bodies: only those who act on notifications may."""
        return self.role.includes(Role.OPERATOR)

    def require(self, role: Role) -> None:
        """Raise Denied unless the actor's role includes this one."""
        if not self.role.includes(role):
            raise Denied(
                "access.role",
                f"this needs the role {role.value}; {self.name} is {self.role.value}",
                hint="ask an administrator for access",
            )
