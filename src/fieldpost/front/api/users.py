"""`/users`: the people who may come in. `/me` and `/sessions`: who one is, and where one is logged in."""

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.central.access.users import Link, TokenRecord, UserRecord
from fieldpost.core.actor import Role
from fieldpost.core.errors import InvalidInput
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import NAME, Parameter, spec


class NewUser(Body, frozen=True):
    name: str
    role: str


class ChangedUser(Body, frozen=True):
    """Only what changes."""

    version: int
    role: str | UnsetType = UNSET
    is_disabled: bool | UnsetType = UNSET


class OneTimeLinkView(msgspec.Struct, frozen=True):
    name: str
    link: str
    """The path and query at central's address by which the person chooses a password, once. Shown this once."""
    expires_at: str


class UserView(msgspec.Struct, frozen=True):
    name: str
    role: str
    is_disabled: bool
    has_password: bool
    is_external: bool
    """Known by the identity provider."""
    created_at: str
    created_by: str | None
    last_login_at: str | None
    version: int


class UsersView(msgspec.Struct, frozen=True):
    users: list[UserView]


class LoggedOut(msgspec.Struct, frozen=True):
    sessions: int


class SessionView(msgspec.Struct, frozen=True):
    session_id: str
    user: str
    created_at: str
    last_used_at: str
    expires_at: str | None
    address: str | None
    agent: str | None


class SessionsView(msgspec.Struct, frozen=True):
    sessions: list[SessionView]


class Me(msgspec.Struct, frozen=True):
    name: str
    role: str
    token: str | None
    """The name of the API token that this call was made with."""


@spec(OneTimeLinkView, 201, body=NewUser, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """A new person of a `role`, who chooses a password by the one-time link in the answer."""
    new = await call.read(NewUser)
    return ApiAnswer(_link_view(await call.operate.users.add(call.actor, new.name, role_of(new.role))), 201)


@spec(UsersView)
async def show_all(call: Call) -> ApiAnswer:
    """All people who may come in."""
    call.query()
    return ApiAnswer(UsersView([_view(one) for one in await call.operate.users.all(call.actor)]))


@spec(UserView)
async def show(call: Call) -> ApiAnswer:
    """One person."""
    call.query()
    return ApiAnswer(_view(await call.operate.users.get(call.actor, call.path("name"))))


@spec(UserView, body=ChangedUser, problems=(409,))
async def change(call: Call) -> ApiAnswer:
    """Another `role`, or `is_disabled`; either ends the person's sessions. Names the `version` seen."""
    change = await call.read(ChangedUser)
    changed = await call.operate.users.change(
        call.actor,
        call.path("name"),
        change.version,
        role=KEEP if change.role is UNSET else role_of(change.role),
        is_disabled=KEEP if change.is_disabled is UNSET else change.is_disabled,
    )
    return ApiAnswer(_view(changed))


@spec(problems=(409,))
async def remove(call: Call) -> ApiAnswer:
    """The person is gone, with all sessions and tokens; what he did stays in the audit log."""
    await call.operate.users.remove(call.actor, call.path("name"))
    return ApiAnswer(status=204)


@spec(OneTimeLinkView, 201, problems=(409,))
async def reset_password(call: Call) -> ApiAnswer:
    """A one-time link by which the person chooses another password; the present one is good until then."""
    call.query()
    return ApiAnswer(_link_view(await call.operate.users.reset_password(call.actor, call.path("name"))), 201)


@spec(LoggedOut)
async def log_out(call: Call) -> ApiAnswer:
    """End all sessions of a person."""
    call.query()
    return ApiAnswer(LoggedOut(await call.operate.users.log_out(call.actor, call.path("name"))))


@spec(Me)
async def me(call: Call) -> ApiAnswer:
    """In whose name one calls, and with which role."""
    call.query()
    return ApiAnswer(Me(call.actor.name, call.actor.role.value, call.actor.token))


@spec(SessionsView, query=(Parameter("user", NAME, "another's, for an administrator"),), problems=(403, 404))
async def sessions(call: Call) -> ApiAnswer:
    """Where one is logged in at the console; an administrator may ask for another `user`."""
    query = call.query()
    logins, users = call.operate.logins, call.operate.users
    if "user" in query and query["user"][0] != call.actor.name:
        found = await users.sessions(call.actor, query["user"][0])
    else:
        found = await logins.sessions(call.actor)
    return ApiAnswer(SessionsView([_session_view(one) for one in found]))


@spec()
async def end_session(call: Call) -> ApiAnswer:
    """End one of one's own sessions."""
    await call.operate.logins.end(call.actor, call.path("session_id"))
    return ApiAnswer(status=204)


def role_of(text: str) -> Role:
    if text not in list(Role):
        raise InvalidInput("role.unknown", f"role must be one of {', '.join(Role)}", field="role")
    return Role(text)


def _link_view(link: Link) -> OneTimeLinkView:
    return OneTimeLinkView(link.name, link.path, to_text(link.expires_at))


def _view(found: UserRecord) -> UserView:
    return UserView(
        name=found.name,
        role=found.role,
        is_disabled=found.disabled_at is not None,
        has_password=found.password_hash is not None,
        is_external=found.subject is not None,
        created_at=to_text(found.created_at),
        created_by=found.created_by,
        last_login_at=to_text(found.last_login_at) if found.last_login_at else None,
        version=found.version,
    )


def _session_view(found: TokenRecord) -> SessionView:
    return SessionView(
        session_id=found.prefix,
        user=found.owner,
        created_at=to_text(found.created_at),
        last_used_at=to_text(found.last_used_at or found.created_at),
        expires_at=to_text(found.expires_at) if found.expires_at else None,
        address=found.address,
        agent=found.user_agent,
    )
