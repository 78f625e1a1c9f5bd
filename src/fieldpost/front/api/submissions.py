"""`POST /notifications`: applications that are no site hand in notifications, one by one or in batches.

It is the ingest that sites submit to, with the same rules. The source is the application itself: `app:` and the name of
its API token. An id, or a key of which an id is made, comes with every notification, so that whoever heard no answer
sends the same again and nothing is doubled.
"""

import msgspec

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.ids import derived_id
from fieldpost.front.allowance import LinkKind
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import Parameter, spec
from fieldpost.link.messages import ACCEPTED, FRAME_BYTES_MAX, ITEMS_MAX, REJECTED, Item, Result, Submit

KEY_HEADER = "Idempotency-Key"
KEY_LENGTH_MAX = 256
CREATED = 201
FIELDS = ("notification_id", "list_name", "subject", "body", "instance", "script", "execution_id")


class NewNotification(Body, frozen=True, kw_only=True):
    """One notification; the id may be left out where the header `Idempotency-Key` is given."""

    list_name: str
    subject: str
    body: str
    notification_id: str | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None


class BatchedNotification(NewNotification, frozen=True, kw_only=True):
    """One of many; each has its id."""

    notification_id: str


class NewBatch(Body, frozen=True):
    notifications: list[BatchedNotification]


class SubmittedView(msgspec.Struct, frozen=True):
    """`accepted`, or `duplicate` when the same was taken before; it is on disk then."""

    notification_id: str
    verdict: str


class ResultView(msgspec.Struct, frozen=True):
    """The same, or `rejected` with the code and the reason: sending it again as it is would not help."""

    notification_id: str
    verdict: str
    code: str | None
    error: str | None


class BatchView(msgspec.Struct, frozen=True):
    """The results in the order of the batch."""

    results: list[ResultView]


@spec(
    SubmittedView,
    CREATED,
    body=NewNotification,
    headers=(
        Parameter(
            KEY_HEADER,
            {"type": "string", "pattern": "^[!-~]{1,256}$"},
            "the application's own name for this notification, instead of an id",
        ),
    ),
    may={200: SubmittedView},
    problems=(409, 429),
)
async def send(call: Call) -> ApiAnswer:
    """Hand in one notification: 201 once it is on disk, 200 when it was there already. It needs a `notification_id`,
    or the header `Idempotency-Key`; the same one with other content is refused by 409."""
    new = await call.read(NewNotification)
    source = call.actor.source
    key = _key(call)
    if (new.notification_id is None) == (key is None):
        raise InvalidInput(
            "notification.no_id",
            f"either notification_id or the header {KEY_HEADER} must be given",
            field="notification_id",
            hint="so that sending again after a lost answer doubles nothing",
        )
    item = _item(new, new.notification_id if key is None else derived_id(source, key))
    (result,) = await _submit(call, source, [item])
    if result.verdict == REJECTED:
        raise _refusal(result)
    return ApiAnswer(
        SubmittedView(result.notification_id, result.verdict), CREATED if result.verdict == ACCEPTED else 200
    )


@spec(BatchView, body=NewBatch, problems=(429,))
async def send_batch(call: Call) -> ApiAnswer:
    """Hand in up to 500 notifications at once, each with its id; each gets its own result, and one that is rejected
    holds back no other."""
    batch = await call.read(NewBatch, FRAME_BYTES_MAX)
    if not 1 <= len(batch.notifications) <= ITEMS_MAX:
        raise InvalidInput("submit.too_many", f"notifications must be from 1 to {ITEMS_MAX}", field="notifications")
    items = [_item(one, one.notification_id) for one in batch.notifications]
    results = await _submit(call, call.actor.source, items)
    return ApiAnswer(BatchView([ResultView(r.notification_id, r.verdict, r.code, r.error) for r in results]))


async def _submit(call: Call, source: str, items: list[Item]) -> tuple[Result, ...]:
    allowances = call.backend.allowances
    allowances.check(source, LinkKind.DATA)
    allowances.charge(source, LinkKind.DATA, items=len(items), bytes=sum(len(item.body) for item in items))
    return (await call.backend.ingest.submit(source, Submit(0, tuple(items), more=False))).results


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
