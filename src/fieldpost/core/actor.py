"""Who acts: a person or a program with a role. A role may do all that the roles before it may."""

from dataclasses import dataclass, field
from enum import StrEnum

from fieldpost.core.errors import Denied
from fieldpost.core.text import LABEL_BYTES_MAX, truncate

APP = "app:"
"""What the source of an application begins with, and no site's name does."""


class Role(StrEnum):
    VIEWER = "viewer"
    """Sees."""
    OPERATOR = "operator"
    """Retries, discards, resets."""
    ADMIN = "admin"
    """Lists, channels, subscriptions, sites, users."""

    def includes(self, other: "Role") -> bool:
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Actor:
    """The name that audit entries carry, and what its bearer may do."""

    name: str
    role: Role
    token: str | None = field(default=None, compare=False)
    """The API token by which a program acts in this person's name; None where the person himself does."""

    @property
    def source(self) -> str:
        """What stands in a site's place where an application sends: its token by name, or whose it is."""
        return APP + truncate(self.token or self.name, LABEL_BYTES_MAX - len(APP))

    @property
    def may_read_bodies(self) -> bool:
        """What was written to people is for those who must act on it; whoever only views sees all else."""
        return self.role.includes(Role.OPERATOR)

    def require(self, role: Role) -> None:
        """Raise Denied unless the actor's role includes this one."""
        if not self.role.includes(role):
            raise Denied(
                "access.role",
                f"this needs the role {role.value}; {self.name} is {self.role.value}",
                hint="ask an administrator",
            )
