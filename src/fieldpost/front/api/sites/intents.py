"""`/intents`: requests of operators to sites, and their results."""

import msgspec

from fieldpost.central.watch.cached_calls import IntentPage
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import INTENT_FILTERS, read_filters
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import PAGED, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField


class NewIntent(Body, frozen=True, kw_only=True):
    site: str
    kind: str
    message_ids: tuple[str, ...] = ()
    arguments: dict[str, str | int] = msgspec.field(default_factory=dict)
    reason: str | None = None


INTENT = View(
    "IntentView",
    Intent,
    "intent_id site kind message_id arguments reason actor state outcome detail answer attempts",
    "created_at expires_at sent_at done_at",
    description="`answer` is the site's answer to a query: its rows, and where the next page starts.",
)
INTENTS = View("IntentsView", IntentPage, ViewField("intents", view=INTENT), "next_cursor")


@spec(INTENTS, 201, body=NewIntent, problems=(409,))
async def create(call: Call) -> IntentPage:
    """Create an intent for a site, or one for each of `message_ids`. It waits until the site is connected."""
    new = await call.read(NewIntent)
    given = await call.operate.intents.create(
        call.actor,
        new.site,
        _kind(new.kind),
        message_ids=new.message_ids,
        arguments=new.arguments,
        reason=new.reason,
    )
    return IntentPage(given, None)


@spec(INTENTS, query=(*filter_parameters(INTENT_FILTERS), *PAGED))
async def page(call: Call) -> IntentPage:
    """List intents, newest first."""
    wanted = read_filters(INTENT_FILTERS, call.filters(INTENT_FILTERS))
    return await call.watch.cached_calls.intents(**wanted, **call.paging())


@spec(INTENT)
async def show(call: Call) -> Intent:
    """Show one intent with its outcome and the answer of the site."""
    return await call.watch.cached_calls.intent(call.path("intent_id"))


@spec(INTENT, body=Body, problems=(409,))
async def cancel(call: Call) -> Intent:
    """Cancel an intent that has not been sent yet."""
    await call.read(Body)
    return await call.operate.intents.cancel(call.actor, call.path("intent_id"))


def _kind(text: str) -> IntentKind:
    try:
        return IntentKind(text)
    except ValueError:
        known = ", ".join(IntentKind)
        raise InvalidInput("intent.kind", f"kind must be one of {known}, not {text[:64]!r}", field="kind") from None
