"""`/lists`: add, look, change, remove; import and export."""

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.central.operate.lists import ListSpec
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import ListChange, NotificationList
from fieldpost.core.retry import to_text
from fieldpost.front.body import read_body
from fieldpost.front.files.lists import FILE_BYTES_MAX, ListFile, from_csv, from_json, to_csv, to_json
from fieldpost.front.http.call import ApiAnswer, Body, Call, FileAnswer
from fieldpost.front.http.endpoint_spec import JSON, Parameter, one_of, spec
from fieldpost.link.codec import check_json

FORMATS = ("csv", "json")
CSV = "text/csv"


class NewList(Body, frozen=True):
    name: str
    targets: list[str]
    type: str = "email"
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None
    allowed_sites: list[str] | None = None


class ChangedList(Body, frozen=True):
    """Only what changes; null for the default. `targets` are all of them, not those to add."""

    version: int
    targets: list[str] | UnsetType = UNSET
    channel: str | UnsetType | None = UNSET
    park_uncertain: bool | UnsetType = UNSET
    retry: str | UnsetType | None = UNSET
    allowed_sites: list[str] | UnsetType | None = UNSET


class ListView(msgspec.Struct, frozen=True):
    name: str
    type: str
    targets: tuple[str, ...]
    channel: str | None
    park_uncertain: bool
    retry: str | None
    allowed_sites: tuple[str, ...] | None
    version: int


class ListsView(msgspec.Struct, frozen=True):
    lists: list[ListView]


class ChangeView(msgspec.Struct, frozen=True):
    """What becomes of one list; `properties` are those that change besides the targets."""

    list: str
    is_new: bool
    added: tuple[str, ...]
    removed: tuple[str, ...]
    properties: tuple[str, ...]


class ImportView(msgspec.Struct, frozen=True):
    dry_run: bool
    changes: list[ChangeView]
    unchanged: int


@spec(ListView, 201, body=NewList, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """A new list of `targets` of one `type`, by its own `channel` or the default of the type."""
    new = await call.read(NewList)
    return ApiAnswer(_view(await call.operate.lists.add(call.actor, ListSpec(**msgspec.structs.asdict(new)))), 201)


@spec(ListsView)
async def show_all(call: Call) -> ApiAnswer:
    """All lists."""
    call.query()
    return ApiAnswer(ListsView([_view(found) for found in await call.operate.lists.all()]))


@spec(ListView)
async def show(call: Call) -> ApiAnswer:
    """One list with all its targets."""
    call.query()
    return ApiAnswer(_view(await call.operate.lists.get(call.path("name"))))


@spec(ListView, body=ChangedList, problems=(409,))
async def change(call: Call) -> ApiAnswer:
    """New `targets`, `channel` or policy; what is left out stays, null means the default. Names the `version` seen."""
    change = await call.read(ChangedList)
    changed = await call.operate.lists.change(
        call.actor,
        call.path("name"),
        change.version,
        targets=KEEP if change.targets is UNSET else change.targets,
        channel=KEEP if change.channel is UNSET else change.channel,
        park_uncertain=KEEP if change.park_uncertain is UNSET else change.park_uncertain,
        retry=KEEP if change.retry is UNSET else change.retry,
        allowed_sites=KEEP if change.allowed_sites is UNSET else change.allowed_sites,
    )
    return ApiAnswer(_view(changed))


@spec(problems=(409,))
async def remove(call: Call) -> ApiAnswer:
    """The list is gone; what comes for it later parks, naming it."""
    await call.operate.lists.remove(call.actor, call.path("name"))
    return ApiAnswer(status=204)


@spec({"application/json": ListFile, "text/csv": None}, query=(Parameter("format", one_of(FORMATS), "of the file"),))
async def export(call: Call) -> ApiAnswer:
    """All lists as a file, `format` csv or json (the default). Audited, since it holds everybody's address."""
    format_ = call.query().get("format", ["json"])[0]
    if format_ not in FORMATS:
        raise InvalidInput("export.format", "format must be csv or json", field="format")
    lists = await call.operate.lists.export(call.actor)
    if format_ == "csv":
        return ApiAnswer(FileAnswer(to_csv(lists), "text/csv; charset=utf-8"))
    return ApiAnswer(FileAnswer(to_json(lists), "application/json"))


@spec(
    ImportView,
    body={JSON: ListFile, CSV: None},
    query=(Parameter("dry_run", one_of(("true", "false")), "only say what would change"),),
    problems=(409,),
)
async def import_(call: Call) -> ApiAnswer:
    """A file of lists (`text/csv` or `application/json`): all of it or nothing. With `dry_run=true` only what it would
    change; lists that the file does not name stay as they are."""
    dry_run = call.query().get("dry_run", ["false"])[0]
    if dry_run not in ("true", "false"):
        raise InvalidInput("query.invalid", "dry_run must be true or false", field="dry_run")
    specs = await _specs(call)
    lists = call.operate.lists
    changes = await (lists.plan_import(specs) if dry_run == "true" else lists.import_all(call.actor, specs))
    shown = [_change_view(change) for change in changes if not change.is_empty]
    return ApiAnswer(ImportView(dry_run == "true", shown, len(changes) - len(shown)))


async def _specs(call: Call) -> list[ListSpec]:
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/csv", "application/json"):
        raise InvalidInput("http.content_type", "the content type must be text/csv or application/json")
    data = await read_body(call.request, FILE_BYTES_MAX)
    if kind == "application/json":
        check_json(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("import.encoding", "the file is not UTF-8", hint="save it as CSV UTF-8") from None
    return from_csv(text) if kind == "text/csv" else from_json(text)


def _view(found: NotificationList) -> ListView:
    return ListView(
        name=found.name,
        type=found.type,
        targets=found.targets,
        channel=found.channel_name,
        park_uncertain=found.park_uncertain,
        retry=to_text(found.retry) if found.retry else None,
        allowed_sites=found.allowed_sites,
        version=found.version,
    )


def _change_view(change: ListChange) -> ChangeView:
    return ChangeView(change.name, change.is_new, change.added, change.removed, change.properties)
