"""`/tokens`: API tokens, by which programs act in somebody's name."""

from datetime import timedelta

import msgspec

from fieldpost.central.access.tokens import LIFE_DEFAULT, LIFE_MAX, TokenRecord
from fieldpost.core.errors import InvalidInput
from fieldpost.core.times import to_text
from fieldpost.front.api.users import role_of
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import spec


class NewToken(Body, frozen=True):
    name: str
    role: str
    user: str | None = None
    """In whose name it acts; the caller's own unless another is given."""
    expires_in_s: float | None = LIFE_DEFAULT.total_seconds()
    """null: never."""


class AddedTokenView(msgspec.Struct, frozen=True):
    token_id: str
    name: str
    user: str
    role: str
    expires_at: str | None
    token: str
    """Shown this once."""


class TokenView(msgspec.Struct, frozen=True):
    token_id: str
    name: str | None
    user: str
    role: str | None
    created_at: str
    created_by: str | None
    expires_at: str | None
    last_used_at: str | None
    """To the minute."""


class TokensView(msgspec.Struct, frozen=True):
    tokens: list[TokenView]


@spec(AddedTokenView, 201, body=NewToken, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """A new token with a `role` that is at most its user's. The answer holds it, this once."""
    new = await call.read(NewToken)
    added = await call.operate.tokens.add(
        call.actor, new.name, role_of(new.role), owner=new.user, life=_life(new.expires_in_s)
    )
    expires_at = to_text(added.expires_at) if added.expires_at else None
    return ApiAnswer(
        AddedTokenView(added.token_id, added.name, added.owner, added.role.value, expires_at, added.token), 201
    )


@spec(TokensView)
async def show_all(call: Call) -> ApiAnswer:
    """Tokens that can be used: all of them for an administrator, one's own for everybody else."""
    call.query()
    return ApiAnswer(TokensView([_view(one) for one in await call.operate.tokens.all(call.actor)]))


@spec(problems=(403,))
async def revoke(call: Call) -> ApiAnswer:
    """The token is worth nothing from now on. One's own, or anybody's for an administrator."""
    await call.operate.tokens.revoke(call.actor, call.path("token_id"))
    return ApiAnswer(status=204)


def _life(seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 0 < seconds <= LIFE_MAX.total_seconds():
        raise InvalidInput(
            "token.life", f"expires_in_s must be above 0 and at most {LIFE_MAX.days} days", field="expires_in_s"
        )
    return timedelta(seconds=seconds)


def _view(found: TokenRecord) -> TokenView:
    return TokenView(
        token_id=found.prefix,
        name=found.name,
        user=found.owner,
        role=found.role,
        created_at=to_text(found.created_at),
        created_by=found.created_by,
        expires_at=to_text(found.expires_at) if found.expires_at else None,
        last_used_at=to_text(found.last_used_at) if found.last_used_at else None,
    )
