"""`/intents`: what operators want done at sites, and what came of it."""

from collections.abc import Mapping

import msgspec

from fieldpost.central.watch.cached_calls import LIMIT_DEFAULT
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import INTENT_FILTERS, read_filters
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import PAGED, filter_parameters, spec


class NewIntent(Body, frozen=True, kw_only=True):
    site: str
    kind: str
    message_ids: tuple[str, ...] = ()
    arguments: dict[str, str | int] = msgspec.field(default_factory=dict)
    reason: str | None = None


class IntentView(msgspec.Struct, frozen=True, kw_only=True):
    intent_id: str
    site: str
    kind: str
    message_id: str | None
    arguments: Mapping[str, str | int]
    reason: str | None
    actor: str
    state: str
    outcome: str | None
    detail: str | None
    answer: Mapping[str, object] | None
    """What the site answered to a look: its rows, and where it goes on."""
    attempts: int
    created_at: str
    expires_at: str
    sent_at: str | None
    done_at: str | None


class IntentsView(msgspec.Struct, frozen=True):
    intents: list[IntentView]
    next_cursor: str | None = None


@spec(IntentsView, 201, body=NewIntent, problems=(409,))
async def give(call: Call) -> ApiAnswer:
    """An intent for a site, or one for each of `message_ids`; it waits until the site is there."""
    new = await call.read(NewIntent)
    given = await call.operate.intents.create(
        call.actor,
        new.site,
        _kind(new.kind),
        message_ids=new.message_ids,
        arguments=new.arguments,
        reason=new.reason,
    )
    return ApiAnswer(IntentsView([intent_view(intent) for intent in given]), 201)


@spec(
    IntentsView,
    query=(*filter_parameters(INTENT_FILTERS), *PAGED),
)
async def page(call: Call) -> ApiAnswer:
    """Intents, the newest first, narrowed by `site` and `state`."""
    query = call.query()
    text = query["limit"][0] if "limit" in query else str(LIMIT_DEFAULT)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("query.number", "limit must be a whole number", field="limit")
    found = await call.watch.cached_calls.intents(
        **read_filters(INTENT_FILTERS, call.filters(INTENT_FILTERS)),
        limit=int(text),
        cursor=query["cursor"][0] if "cursor" in query else None,
    )
    return ApiAnswer(IntentsView([intent_view(intent) for intent in found.intents], found.next_cursor))


@spec(IntentView)
async def show(call: Call) -> ApiAnswer:
    """One intent, with its outcome and what the site answered."""
    call.query()
    return ApiAnswer(intent_view(await call.watch.cached_calls.intent(call.path("intent_id"))))


@spec(IntentView, body=Body, problems=(409,))
async def cancel(call: Call) -> ApiAnswer:
    """Take back an intent that was not sent yet."""
    await call.read(Body)
    return ApiAnswer(intent_view(await call.operate.intents.cancel(call.actor, call.path("intent_id"))))


def intent_view(intent: Intent) -> IntentView:
    return IntentView(
        intent_id=intent.intent_id,
        site=intent.site,
        kind=intent.kind.value,
        message_id=intent.message_id,
        arguments=intent.arguments,
        reason=intent.reason,
        actor=intent.actor,
        state=intent.state.value,
        outcome=intent.outcome.value if intent.outcome else None,
        detail=intent.detail,
        answer=intent.answer,
        attempts=intent.attempts,
        created_at=to_text(intent.created_at),
        expires_at=to_text(intent.expires_at),
        sent_at=to_text(intent.sent_at) if intent.sent_at else None,
        done_at=to_text(intent.done_at) if intent.done_at else None,
    )


def _kind(text: str) -> IntentKind:
    try:
        return IntentKind(text)
    except ValueError:
        known = ", ".join(IntentKind)
        raise InvalidInput("intent.kind", f"kind must be one of {known}, not {text[:64]!r}", field="kind") from None
