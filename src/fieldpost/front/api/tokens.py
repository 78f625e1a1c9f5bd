"""`/tokens`: API tokens, with which programs act in the name of a user."""

from collections.abc import Sequence
from datetime import timedelta

from fieldpost.central.access.tokens import LIFE_DEFAULT, LIFE_MAX, AddedToken, TokenRecord
from fieldpost.core.errors import InvalidInput
from fieldpost.front.api.users import role_of
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, listing


class NewToken(Body, frozen=True):
    name: str
    role: str
    user: str | None = None
    """The user in whose name the token acts; the caller unless given."""
    expires_in_s: float | None = LIFE_DEFAULT.total_seconds()
    """null: never."""


ADDED = View(
    "AddedTokenView",
    AddedToken,
    "token_id name user=owner role expires_at token",
    description="The token is shown only once.",
)
TOKEN = View(
    "TokenView",
    TokenRecord,
    "token_id=prefix name user=owner role created_at created_by expires_at last_used_at",
    description="`last_used_at` is precise to the minute.",
)
TOKENS = listing("TokensView", "tokens", TOKEN)


@spec(ADDED, 201, body=NewToken, problems=(409,))
async def add(call: Call) -> AddedToken:
    """Create a token with a `role` up to that of its user. The response contains the token, only this once."""
    new = await call.read(NewToken)
    return await call.operate.tokens.add(
        call.actor, new.name, role_of(new.role), owner=new.user, life=_life(new.expires_in_s)
    )


@spec(TOKENS)
async def show_all(call: Call) -> Sequence[TokenRecord]:
    """List valid tokens: all tokens for an admin, the caller's own tokens for others."""
    return await call.operate.tokens.all(call.actor)


@spec(problems=(403,))
async def revoke(call: Call) -> None:
    """Revoke a token immediately. Only admins can revoke the tokens of others."""
    await call.operate.tokens.revoke(call.actor, call.path("token_id"))


def _life(seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 0 < seconds <= LIFE_MAX.total_seconds():
        raise InvalidInput(
            "token.life", f"expires_in_s must be above 0 and at most {LIFE_MAX.days} days", field="expires_in_s"
        )
    return timedelta(seconds=seconds)
