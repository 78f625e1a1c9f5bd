"""`/breakers`: list and reset circuit breakers."""

from collections.abc import Sequence

from fieldpost.core.delivery.breaker import Breaker
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, listing

BREAKER = View(
    "BreakerView",
    Breaker,
    "key health state failures last_error first_failure_at last_failure_at open_until probe_owner",
)
BREAKERS = listing("BreakersView", "breakers", BREAKER)


@spec(BREAKERS)
async def show_all(call: Call) -> Sequence[Breaker]:
    """List the breakers of channels and lists that were ever tried: healthy, monitored or blocked. Those of
    subscriptions are under `/subscriptions/unhealthy`."""
    return await call.operate.breakers.all()


@spec(BREAKER, problems=(409,))
async def reset(call: Call) -> Breaker:
    """Close a breaker and clear its failures; the notifications that it held become due in batches."""
    return await call.operate.breakers.reset(call.actor, call.path("key"))
