"""Actors and roles. An actor is a person or a program.

Viewer, operator and admin are in order: each includes the permissions of the roles before it. Publisher is outside this
order; only API tokens have it, and it neither includes another role nor is included in one.
"""

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
    PUBLISHER = "publisher"
    """For applications: publishes events, sends notifications, and reads only its own."""

    def includes(self, other: "Role") -> bool:
        if self not in USER_ROLES or other not in USER_ROLES:
            return self is other
        return USER_ROLES.index(self) >= USER_ROLES.index(other)


USER_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""The roles of people, in order; tokens may have any role."""
SOURCE_NAME_BYTES_MAX = LABEL_BYTES_MAX - len(APP)
"""The longest token name, so that two names never share a source."""


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
        return APP + truncate(self.token or self.name, SOURCE_NAME_BYTES_MAX)

    @property
    def own_source(self) -> str | None:
        """The only source that this actor may read; None if it may read all."""
        return self.source if self.role is Role.PUBLISHER else None

    @property
    def speaks_for_owner(self) -> bool:
        """Whether the actor may see and end all credentials of its user: in a session, or with a token of role admin.
        A lesser token must not be a means against its owner."""
        return self.token is None or self.role.includes(Role.ADMIN)

    @property
    def may_read_bodies(self) -> bool:
        """Whether the actor may read notification bodies: only those who act on notifications may."""
        return self.role.includes(Role.OPERATOR)

    def require(self, *roles: Role) -> None:
        """Raise Denied unless the actor's role includes one of these."""
        if not any(self.role.includes(role) for role in roles):
            needed = " or ".join(role.value for role in roles)
            denied = Denied(
                "access.role",
                f"this needs the role {needed}; {self.name} is {self.role.value}",
                hint="ask an administrator for access",
            )
            denied.actor = self.name
            raise denied
