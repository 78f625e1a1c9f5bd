"""`/breakers`: look, reset."""

import msgspec

from fieldpost.core.breaker import Breaker
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import spec


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    health: str
    state: str
    failures: int
    last_error: str | None
    first_failure_at: str | None
    last_failure_at: str | None
    open_until: str | None
    probe_owner: str | None


class BreakersView(msgspec.Struct, frozen=True):
    breakers: list[BreakerView]


@spec(BreakersView)
async def show_all(call: Call) -> ApiAnswer:
    """The breakers of all channels that ever failed: healthy, monitored or blocked."""
    call.query()
    return ApiAnswer(BreakersView([_view(found) for found in await call.operate.breakers.all()]))


@spec(BreakerView, problems=(409,))
async def reset(call: Call) -> ApiAnswer:
    """The breaker is closed and its failures are forgotten; what it held comes free in batches."""
    return ApiAnswer(_view(await call.operate.breakers.reset(call.actor, call.path("key"))))


def _view(b: Breaker) -> BreakerView:
    return BreakerView(
        key=b.key,
        health=b.health,
        state=b.state.value,
        failures=b.failures,
        last_error=b.last_error,
        first_failure_at=to_text(b.first_failure_at) if b.first_failure_at else None,
        last_failure_at=to_text(b.last_failure_at) if b.last_failure_at else None,
        open_until=to_text(b.open_until) if b.open_until else None,
        probe_owner=b.probe_owner,
    )
