"""Authentication of callers: programs by API token, sites by site token. People use the session cookie.

Deny by default: every route declares its `Access`.
"""

from enum import StrEnum

from starlette.datastructures import Headers

from fieldpost.central.access.accounts import Accounts
from fieldpost.central.operate.sites import no_code
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.core.sites.node import SiteNode
from fieldpost.link.credentials import prefix_of

REQUIRED = "auth.required"


class Access(StrEnum):
    """Who may call a route."""

    ANYONE = "anyone"
    SITE = "site"
    JOIN = "join"
    """Any caller with an enrolment code; the handler checks it."""
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    SEND = "operator_or_publisher"
    """Operators, and applications under their own name."""
    READ_OWN = "viewer_or_publisher"
    """Viewers, and applications limited to what they sent; the handler applies the limit."""
    READ_ROW = "viewer_publisher_or_subscriber"
    """As READ_OWN, and subscribers limited to the subscriptions of their owner."""
    OWNER_READ = "viewer_or_subscriber"
    """Viewers, and subscribers limited to the subscriptions of their owner; the handler applies the limit."""
    OWNER_OPERATE = "operator_or_subscriber"
    OWNER_CHANGE = "admin_or_subscriber"
    USER = "any_user"
    """Every user, for their own account."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a person or program needs one."""
        return _ROLES[self]


_ROLES = {
    Access.VIEWER: (Role.VIEWER,),
    Access.OPERATOR: (Role.OPERATOR,),
    Access.ADMIN: (Role.ADMIN,),
    Access.SEND: (Role.OPERATOR, Role.PUBLISHER),
    Access.READ_OWN: (Role.VIEWER, Role.PUBLISHER),
    Access.READ_ROW: (Role.VIEWER, Role.PUBLISHER, Role.SUBSCRIBER),
    Access.OWNER_READ: (Role.VIEWER, Role.SUBSCRIBER),
    Access.OWNER_OPERATE: (Role.OPERATOR, Role.SUBSCRIBER),
    Access.OWNER_CHANGE: (Role.ADMIN, Role.SUBSCRIBER),
    Access.USER: (Role.VIEWER, Role.SUBSCRIBER),
}


async def program(headers: Headers, accounts: Accounts) -> Actor:
    """The owner of the API token; Denied if the token is invalid."""
    actor = await accounts.by_api_token(bearer(headers))
    if actor is None:
        raise Denied("auth.invalid", "the token is not valid", hint="it may be revoked or expired")
    return actor


async def site_node(headers: Headers, accounts: Accounts) -> SiteNode:
    """The site and node that the token belongs to; Denied if the token is invalid."""
    token = bearer(headers)
    found = await accounts.by_site_token(token)
    if found is None:
        raise await accounts.refuse_site(token)
    return found


def code(headers: Headers) -> str:
    """The enrolment code, checked for its form only; Denied if it is anything else."""
    text = bearer(headers)
    if prefix_of(text, "join") is None:
        raise no_code()
    return text


def bearer(headers: Headers) -> str:
    """The bearer token of the request, unchecked; Denied without one."""
    given = headers.getlist("authorization")
    if len(given) > 1:
        raise InvalidInput("http.authorization", "more than one Authorization header", field="Authorization")
    scheme, _, token = (given[0] if given else "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Denied(REQUIRED, "a token is required", hint="send the header Authorization: Bearer TOKEN")
    return token.strip()
