"""`/tokens`: API tokens, with which programs act in the name of a user."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.central.access.tokens import LIFE_MAX, OVERLAP_DEFAULT, TOKEN_LIFE, AddedToken, TokenRecord
from fieldpost.core.actor import Role
from fieldpost.core.errors import InvalidInput
from fieldpost.front.api.access.users import role_of
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, listing


class NewToken(Body, frozen=True):
    name: str
    role: str
    user: str | None = None
    """The user in whose name the token acts; the caller unless given."""
    subscription_owner: str | None = None
    """For the role subscriber, unless the user is a subscriber: the owner whose subscriptions the token reaches."""
    expires_in_s: float | None = TOKEN_LIFE.total_seconds()
    """null: never."""


class TokenRotation(Body, frozen=True):
    overlap_s: float = OVERLAP_DEFAULT.total_seconds()
    """How long the former tokens of this name still work."""
    expires_in_s: float | msgspec.UnsetType | None = msgspec.UNSET
    """null: never; as long as the former token unless given."""


ADDED = View(
    "AddedTokenView",
    AddedToken,
    "token_id name user=owner role expires_at token",
    description="The token is shown only once.",
)
TOKEN = View(
    "TokenView",
    TokenRecord,
    "token_id=prefix name user=owner role subscription_owner created_at created_by expires_at last_used_at",
    description="`last_used_at` is precise to the minute.",
)
TOKENS = listing("TokensView", "tokens", TOKEN)


@spec(ADDED, 201, body=NewToken, problems=(409,))
async def add(call: Call) -> AddedToken:
    """Create a token with a `role` up to that of its user; or with the role publisher, for applications that publish
    events and send notifications; or with the role subscriber, for programs that manage the subscriptions of one owner.
    Its name must never have been used before. The response contains the token, only this once."""
    new = await call.read(NewToken)
    return await call.operate.tokens.add(
        call.actor,
        new.name,
        role_of(new.role, tuple(Role)),
        owner=new.user,
        subscription_owner=new.subscription_owner,
        life=_life(new.expires_in_s),
    )


@spec(ADDED, 201, body=TokenRotation, problems=(409,))
async def rotate(call: Call) -> AddedToken:
    """Issue another token of the same name, user and role; the former ones end after `overlap_s`. The name is the
    source of the program's notifications and events, so these stay its own. Works for an expired or revoked token."""
    asked = await call.read(TokenRotation)
    return await call.operate.tokens.rotate(
        call.actor,
        call.path("name"),
        overlap=_overlap(asked.overlap_s),
        life=KEEP if isinstance(asked.expires_in_s, msgspec.UnsetType) else _life(asked.expires_in_s),
    )


@spec(TOKENS)
async def show_all(call: Call) -> Sequence[TokenRecord]:
    """List valid tokens: all tokens with the role admin, otherwise only the token of the request."""
    return await call.operate.tokens.all(call.actor)


@spec(problems=(403,))
async def revoke(call: Call) -> None:
    """Revoke a token immediately: any token with the role admin, otherwise only the token of the request."""
    await call.operate.tokens.revoke(call.actor, call.path("token_id"))


def _overlap(seconds: float) -> timedelta:
    # Out of range for a timedelta means out of range for an overlap, which the action checks.
    return timedelta(seconds=min(max(seconds, -1.0), LIFE_MAX.total_seconds()))


def _life(seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 0 < seconds <= LIFE_MAX.total_seconds():
        raise InvalidInput(
            "token.life", f"expires_in_s must be above 0 and at most {LIFE_MAX.days} days", field="expires_in_s"
        )
    return timedelta(seconds=seconds)
