"""`POST /notifications`: applications submit notifications, one at a time or in batches.

The rules are those of ingest from sites. The source is the application: `app:` and the name of its API token. Every
notification needs an id, or a key from which the id is derived, so that a repeated request after a lost response
creates no duplicate.
"""

from dataclasses import dataclass

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.ids import derived_id
from fieldpost.front.allowance import LinkKind, TooMuch
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import Parameter, spec
from fieldpost.link.http.problem import RETRY_AFTER_S
from fieldpost.link.http.view import View, ViewField
from fieldpost.link.messages import ACCEPTED, FRAME_BYTES_MAX, ITEMS_MAX, LATER, REJECTED, Item, Result, Submit

KEY_HEADER = "Idempotency-Key"
KEY_LENGTH_MAX = 256
CREATED = 201
FIELDS = (
    "notification_id",
    "list_name",
    "subject",
    "body",
    "instance",
    "script",
    "execution_id",
    "severity",
    "incident",
)


class NewNotification(Body, frozen=True, kw_only=True):
    """One notification; the id may be omitted if the header `Idempotency-Key` is given."""

    list_name: str
    subject: str
    body: str
    notification_id: str | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    severity: str | None = None
    incident: str | None = None
    is_cleared: bool = False


class BatchedNotification(NewNotification, frozen=True, kw_only=True):
    """One notification of a batch; it must have an id."""

    notification_id: str


class NewBatch(Body, frozen=True):
    notifications: list[BatchedNotification]


@dataclass(frozen=True, slots=True)
class SubmittedBatch:
    """The results of a batch, in its order."""

    results: tuple[Result, ...]


SUBMITTED = View(
    "SubmittedView",
    Result,
    "notification_id verdict",
    description="`accepted`, or `duplicate` if it was accepted before; either way it is on disk.",
)
RESULT = View(
    "ResultView",
    Result,
    "notification_id verdict code error",
    description="`accepted`, `duplicate`, or with code and reason `rejected` (do not repeat it unchanged) or `later`"
    " (repeat it).",
)
BATCH = View("BatchView", SubmittedBatch, ViewField("results", view=RESULT))


@spec(
    SUBMITTED,
    CREATED,
    body=NewNotification,
    headers=(
        Parameter(
            KEY_HEADER,
            {"type": "string", "pattern": "^[!-~]{1,256}$"},
            "The application's name for this notification, in place of an id",
        ),
    ),
    other_answers={200: SUBMITTED},
    problems=(409, 429),
)
async def send(call: Call) -> ApiAnswer:
    """Submit one notification: 201 when it is on disk, 200 if it already was. Requires a `notification_id` or the
    header `Idempotency-Key`; the same one with different content is rejected with 409."""
    new = await call.read(NewNotification)
    source = call.actor.source
    key = _key(call)
    if (new.notification_id is None) == (key is None):
        raise InvalidInput(
            "notification.no_id",
            f"give either notification_id or the header {KEY_HEADER}",
            field="notification_id",
            hint="it prevents duplicates when a request is repeated",
        )
    item = _item(new, new.notification_id if key is None else derived_id(source, key))
    (result,) = await _submit(call, source, [item], is_derived=key is not None)
    if result.verdict == REJECTED:
        raise _refusal(result)
    return ApiAnswer(result, CREATED if result.verdict == ACCEPTED else 200)


@spec(BATCH, body=NewBatch, problems=(429,))
async def send_batch(call: Call) -> SubmittedBatch:
    """Submit up to 500 notifications, each with its id. Each gets its own result; a rejected one does not affect the
    others."""
    batch = await call.read(NewBatch, FRAME_BYTES_MAX)
    if not 1 <= len(batch.notifications) <= ITEMS_MAX:
        raise InvalidInput(
            "submit.too_many",
            f"a batch must have 1 to {ITEMS_MAX} notifications, got {len(batch.notifications)}",
            field="notifications",
        )
    items = [_item(one, one.notification_id) for one in batch.notifications]
    return SubmittedBatch(await _submit(call, call.actor.source, items))


async def _submit(call: Call, source: str, items: list[Item], *, is_derived: bool = False) -> tuple[Result, ...]:
    allowances = call.backend.allowances
    allowances.check(source, LinkKind.DATA)
    allowances.charge(source, LinkKind.DATA, items=len(items), bytes=sum(len(item.body) for item in items))
    submitted = Submit(0, tuple(items), more=False)
    results = (await call.backend.ingest.submit(source, submitted, are_derived=is_derived)).results
    if all(result.verdict == LATER for result in results):
        first = results[0]
        raise TooMuch(first.code or "", first.error or "", first.wait_s or RETRY_AFTER_S)
    return results


def _item(new: NewNotification, notification_id: str | None) -> Item:
    return Item(
        notification_id or "",
        new.list_name,
        new.subject,
        new.body,
        instance=new.instance,
        script=new.script,
        execution_id=new.execution_id,
        parent_execution_id=new.parent_execution_id,
        severity=new.severity,
        incident=new.incident,
        is_cleared=new.is_cleared,
    )


def _key(call: Call) -> str | None:
    given = call.request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    if len(given) > 1 or not 1 <= len(given[0]) <= KEY_LENGTH_MAX or not all("!" <= c <= "~" for c in given[0]):
        raise InvalidInput(
            "http.idempotency_key",
            f"{KEY_HEADER} must be 1 to {KEY_LENGTH_MAX} visible ASCII characters, once",
            field=KEY_HEADER,
        )
    return given[0]


def _refusal(result: Result) -> Conflict | InvalidInput:
    code, error = result.code or "", result.error or ""
    if code == "notification.conflict":
        return Conflict("notification.conflict", error, field="notification_id")
    field = error.partition(" ")[0]
    return InvalidInput(code, error, field=field if field in FIELDS else None)
