"""Actors and roles. An actor is a person or a program.

Viewer, operator and admin are in order: each includes the permissions of the roles before it. Publisher and subscriber
are outside this order: neither includes another role nor is included in one. Only API tokens have the role publisher. A
subscriber has an owner name, and reaches the subscriptions of that owner and nothing else.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.core.text import LABEL_BYTES_MAX, check_label, truncate

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
    SUBSCRIBER = "subscriber"
    """For developers of receivers: sees and changes the subscriptions of one owner, and nothing else."""

    def includes(self, other: "Role") -> bool:
        if self not in _ORDERED or other not in _ORDERED:
            return self is other
        return _ORDERED.index(self) >= _ORDERED.index(other)


_ORDERED = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
USER_ROLES = (*_ORDERED, Role.SUBSCRIBER)
"""The roles of people; tokens may have any role."""
ZGW_CLIENT = "zgw:"
"""The text after `app:` in the source name of a client of the ZGW API; no token name starts with it."""
SOURCE_NAME_BYTES_MAX = LABEL_BYTES_MAX - len(APP)
"""The longest token name, so that two names never share a source."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A user as recorded in audit entries, with the role that limits their actions."""

    name: str
    role: Role
    token: str | None = field(default=None, compare=False)
    """The name of the API token if a program acts for this user; None for the user's own session."""
    subscription_owner: str | None = field(default=None, compare=False)
    """The owner name of a subscriber."""

    @property
    def source(self) -> str:
        """The source name, in place of a site, of notifications sent by an application: its token or user name."""
        return APP + truncate(self.token or self.name, SOURCE_NAME_BYTES_MAX)

    @property
    def own_source(self) -> str | None:
        """The only source that this actor may read; None if it may read all."""
        return self.source if self.role is Role.PUBLISHER else None

    @property
    def owner_limit(self) -> str | None:
        """The only owner whose subscriptions this actor may reach; None if it may reach all.

        A subscriber without an owner name reaches none: no owner's name is empty.
        """
        return (self.subscription_owner or "") if self.role is Role.SUBSCRIBER else None

    @property
    def speaks_for_owner(self) -> bool:
        """Whether the actor may see and end all credentials of its user: in a session, or with a token of role admin.
        A token of a lower role must not reach the owner's other credentials."""
        return self.token is None or self.role.includes(Role.ADMIN)

    @property
    def may_read_bodies(self) -> bool:
        """Whether the actor may read notification bodies: only those who act on notifications may."""
        return self.role.includes(Role.OPERATOR)

    @property
    def may_read_responses(self) -> bool:
        """Whether the actor may read responses of webhook receivers: administrators, and subscribers, who reach only
        subscriptions of their own owner."""
        return self.role in (Role.ADMIN, Role.SUBSCRIBER)

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


def check_subscription_owner(role: Role, owner: str | None) -> str | None:
    """The owner name for a user or token of this role, or InvalidInput: a subscriber has one, other roles have none."""
    if role is not Role.SUBSCRIBER:
        if owner is not None:
            raise InvalidInput(
                "owner.unused",
                f"subscription_owner is for the role subscriber, not for {role.value}",
                field="subscription_owner",
            )
        return None
    if owner is None or owner == "*":
        raise InvalidInput(
            "owner.missing",
            "the role subscriber needs subscription_owner, the one owner whose subscriptions it may see and change",
            field="subscription_owner",
        )
    return check_label(owner, "subscription_owner")
