"""Who is calling: a program by its API token, a site by its site token, a person by the session cookie.

Deny by default: every route declares its `Access`, and nothing is served by a route that does not.
"""

from enum import StrEnum

from starlette.datastructures import Headers

from fieldpost.central.access.accounts import Accounts
from fieldpost.central.operate.sites import no_code
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.link.credentials import prefix_of


class Access(StrEnum):
    """Whom a route serves."""

    ANYONE = "anyone"
    SITE = "site"
    JOIN = "join"
    """Whoever shows a code by which a site enrols; the room that takes it judges it."""
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def role(self) -> Role:
        """The role a person or program needs."""
        return Role(self.value)


async def program(headers: Headers, accounts: Accounts) -> Actor:
    """Whose API token this is; Denied when it is none."""
    actor = await accounts.by_api_token(bearer(headers))
    if actor is None:
        raise Denied("auth.invalid", "the token is not valid here", hint="it may have been revoked or have expired")
    return actor


async def site(headers: Headers, accounts: Accounts) -> str:
    """The site whose token this is; Denied when it is none."""
    token = bearer(headers)
    name = await accounts.by_site_token(token)
    if name is None:
        raise await accounts.refuse_site(token)
    return name


def code(headers: Headers) -> str:
    """A code by which a site enrols, or what looks like one; Denied when it is anything else."""
    text = bearer(headers)
    if prefix_of(text, "join") is None:
        raise no_code()
    return text


def bearer(headers: Headers) -> str:
    """The token that is shown, whatever it is; Denied when there is none."""
    given = headers.getlist("authorization")
    if len(given) > 1:
        raise InvalidInput("http.authorization", "there are two Authorization headers", field="Authorization")
    scheme, _, token = (given[0] if given else "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Denied("auth.required", "this needs a token", hint="send the header Authorization: Bearer TOKEN")
    return token.strip()
