"""`/users`: the users of central. `/me` and `/sessions`: the caller's identity and console sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import UNSET, UnsetType

from fieldpost.central.access.users import Link, TokenRecord, UserRecord
from fieldpost.core.actor import USER_ROLES, Actor, Role
from fieldpost.core.errors import InvalidInput
from fieldpost.front.http.call import Call, changes
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import NAME, Parameter, spec
from fieldpost.link.http.view import View, ViewField, listing


class NewUser(Body, frozen=True):
    name: str
    role: str
    subscription_owner: str | None = None
    """For the role subscriber: the owner whose subscriptions the user sees and changes."""


class ChangedUser(Body, frozen=True):
    """Only the fields to change."""

    version: RowVersion
    role: str | UnsetType = UNSET
    subscription_owner: str | UnsetType | None = UNSET
    is_disabled: bool | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class LoggedOut:
    """How many sessions were ended."""

    sessions: int


def _is_disabled(user: UserRecord) -> bool:
    return user.disabled_at is not None


def _has_password(user: UserRecord) -> bool:
    return user.password_hash is not None


def _is_external(user: UserRecord) -> bool:
    return user.subject is not None


def _last_used_at(session: TokenRecord) -> datetime:
    return session.last_used_at or session.created_at


ONE_TIME_LINK = View(
    "OneTimeLinkView",
    Link,
    "name link=path expires_at",
    description="`link` is the path and query at central's address where the user sets a password. It works once and "
    "is shown only once.",
)
USER = View(
    "UserView",
    UserRecord,
    "name role subscription_owner",
    ViewField("is_disabled", _is_disabled),
    ViewField("has_password", _has_password),
    ViewField("is_external", _is_external),
    "created_at created_by last_login_at version",
    description="`is_external`: the user logs in through the identity provider.",
)
USERS = listing("UsersView", "users", USER)
LOGGED_OUT = View("LoggedOut", LoggedOut, "sessions")
SESSION = View(
    "SessionView",
    TokenRecord,
    "session_id=prefix user=owner created_at",
    ViewField("last_used_at", _last_used_at),
    "expires_at address agent=user_agent",
)
SESSIONS = listing("SessionsView", "sessions", SESSION)
ME = View(
    "Me",
    Actor,
    "name role subscription_owner token",
    description="`token` is the name of the API token of this request.",
)


@spec(ONE_TIME_LINK, 201, body=NewUser, problems=(409,))
async def add(call: Call) -> Link:
    """Add a user with a `role`; a subscriber also needs a `subscription_owner`. The user sets a password with the
    one-time link in the response."""
    new = await call.read(NewUser)
    return await call.operate.users.add(call.actor, new.name, role_of(new.role), new.subscription_owner)


@spec(USERS)
async def show_all(call: Call) -> Sequence[UserRecord]:
    """List all users."""
    return await call.operate.users.all(call.actor)


@spec(USER)
async def show(call: Call) -> UserRecord:
    """Show one user."""
    return await call.operate.users.get(call.actor, call.path("name"))


@spec(USER, body=ChangedUser, problems=(409,))
async def change(call: Call) -> UserRecord:
    """Change the `role` or disable the user; either ends their sessions. Requires the `version` that the caller has
    seen."""
    change = await call.read(ChangedUser)
    role = {} if change.role is UNSET else {"role": role_of(change.role)}
    return await call.operate.users.change(call.actor, call.path("name"), change.version, **changes(change, **role))


@spec(problems=(409,))
async def remove(call: Call) -> None:
    """Remove a user with all sessions and tokens; their actions stay in the audit log."""
    await call.operate.users.remove(call.actor, call.path("name"))


@spec(ONE_TIME_LINK, 201, problems=(409,))
async def reset_password(call: Call) -> Link:
    """Create a one-time link with which the user sets a new password; the present one works until then."""
    return await call.operate.users.reset_password(call.actor, call.path("name"))


@spec(LOGGED_OUT)
async def log_out(call: Call) -> LoggedOut:
    """End all sessions of a user."""
    return LoggedOut(await call.operate.users.log_out(call.actor, call.path("name")))


@spec(ME)
async def me(call: Call) -> Actor:
    """Show the user and role of the caller."""
    return call.actor


@spec(SESSIONS, query=(Parameter("user", NAME, "Another user; admins only"),), problems=(403, 404))
async def sessions(call: Call) -> Sequence[TokenRecord]:
    """List the caller's console sessions; an admin may ask for another `user`."""
    user = call.parameter("user")
    if user is not None and user != call.actor.name:
        return await call.operate.users.sessions(call.actor, user)
    return await call.operate.logins.sessions(call.actor)


@spec()
async def end_session(call: Call) -> None:
    """End one of the caller's own sessions."""
    await call.operate.logins.end(call.actor, call.path("session_id"))


def role_of(text: str, roles: Sequence[Role] = USER_ROLES) -> Role:
    if text not in roles:
        raise InvalidInput("role.unknown", f"role must be one of {', '.join(roles)}", field="role")
    return Role(text)
