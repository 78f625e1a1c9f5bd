"""`/lists`: add, list, show, change and remove lists; import and export files."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.actor import Role
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import ListChange, NotificationList
from fieldpost.front.body import read_body
from fieldpost.front.files.lists import FILE_BYTES_MAX, ListFile, from_csv, from_json, to_csv, to_json
from fieldpost.front.http.call import ApiAnswer, Call, FileAnswer, changes
from fieldpost.link.codec import check_json
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import JSON, Parameter, one_of, spec
from fieldpost.link.http.view import View, ViewField, listing

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
    severity: str | None = None
    rate: str | None = None
    secrets: dict[str, str] = msgspec.field(default_factory=dict)


class ChangedList(Body, frozen=True):
    """Only the fields to change; null resets to the default. `targets` replaces all targets; `secrets` sets the secrets
    of the named targets, and null clears one."""

    version: RowVersion
    targets: list[str] | UnsetType = UNSET
    channel: str | UnsetType | None = UNSET
    park_uncertain: bool | UnsetType = UNSET
    retry: str | UnsetType | None = UNSET
    allowed_sites: list[str] | UnsetType | None = UNSET
    severity: str | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    secrets: dict[str, str | None] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class ListImport:
    """The result of an import: the lists that change, and how many do not."""

    dry_run: bool
    changes: Sequence[ListChange]
    unchanged: int


def _retry(found: NotificationList) -> str | None:
    return to_text(found.retry) if found.retry else None


def _rate(found: NotificationList) -> str | None:
    return found.rate.text if found.rate else None


def _secrets(found: NotificationList) -> dict[str, str]:
    return dict.fromkeys(sorted(found.secrets), "set")


def _target_count(found: NotificationList) -> int:
    return len(found.targets)


LIST = View(
    "ListView",
    NotificationList,
    "name type",
    # All addresses at once are for those who act on notifications; an export is an administrator's and audited.
    ViewField("targets", role=Role.OPERATOR),
    ViewField("target_count", _target_count),
    ViewField("secrets", _secrets, role=Role.OPERATOR),
    "channel=channel_name park_uncertain",
    ViewField("retry", _retry),
    "allowed_sites severity",
    ViewField("rate", _rate),
    "version",
    description="`rate` is null for the default of the type. `secrets` is `set` for each target that has a secret.",
)
LISTS = listing("ListsView", "lists", LIST)
CHANGE = View(
    "ChangeView",
    ListChange,
    "list=name is_new added removed properties",
    description="The changes to one list; `properties` names the changed properties other than targets.",
)
IMPORT = View("ImportView", ListImport, "dry_run", ViewField("changes", view=CHANGE), "unchanged")


@spec(LIST, 201, body=NewList, problems=(409,))
async def add(call: Call) -> NotificationList:
    """Add a list of `targets` of one `type`, delivered through `channel` or the default channel of the type."""
    new = await call.read(NewList)
    return await call.operate.lists.add(call.actor, ListSpec(**msgspec.structs.asdict(new)))


@spec(LISTS)
async def show_all(call: Call) -> Sequence[NotificationList]:
    """List all lists. `targets` is null for viewers, who see only their number."""
    return await call.operate.lists.all()


@spec(LIST)
async def show(call: Call) -> NotificationList:
    """Show one list with all its targets; `targets` is null for viewers."""
    return await call.operate.lists.get(call.path("name"))


@spec(LIST, body=ChangedList, problems=(409,))
async def change(call: Call) -> NotificationList:
    """Change `targets`, `channel` or policies; omitted fields stay, null resets to the default. Requires the `version`
    that the caller has seen."""
    change = await call.read(ChangedList)
    return await call.operate.lists.change(call.actor, call.path("name"), change.version, **changes(change))


@spec(problems=(409,))
async def remove(call: Call) -> None:
    """Remove a list. Notifications that arrive for it later are parked."""
    await call.operate.lists.remove(call.actor, call.path("name"))


@spec({JSON: ListFile, CSV: None}, query=(Parameter("format", one_of(FORMATS), "File format; default json"),))
async def export(call: Call) -> ApiAnswer:
    """Export all lists as a csv or json file. The export is audited, because the file contains all addresses."""
    format_ = call.parameter("format", "json")
    if format_ not in FORMATS:
        raise InvalidInput("export.format", "format must be csv or json", field="format")
    lists = await call.operate.list_files.export(call.actor)
    if format_ == "csv":
        return ApiAnswer(FileAnswer(to_csv(lists), "text/csv; charset=utf-8"))
    return ApiAnswer(FileAnswer(to_json(lists), JSON))


@spec(
    IMPORT,
    body={JSON: ListFile, CSV: None},
    query=(Parameter("dry_run", one_of(("true", "false")), "Only show the changes"),),
    problems=(409,),
)
async def import_(call: Call) -> ListImport:
    """Import a file of lists (`text/csv` or `application/json`), completely or not at all. With `dry_run=true` only
    return the changes. Lists that are not in the file stay as they are."""
    dry_run = call.parameter("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise InvalidInput("query.invalid", "dry_run must be true or false", field="dry_run")
    specs = await _read_specs(call)
    files = call.operate.list_files
    planned = await (files.plan(specs) if dry_run == "true" else files.import_all(call.actor, specs))
    changed = [change for change in planned if not change.is_empty]
    return ListImport(dry_run == "true", changed, len(planned) - len(changed))


async def _read_specs(call: Call) -> list[ListSpec]:
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (CSV, JSON):
        raise InvalidInput("http.content_type", f"Content-Type must be {CSV} or {JSON}, got {kind[:64]!r}")
    data = await read_body(call.request, FILE_BYTES_MAX)
    if kind == JSON:
        check_json(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"line {len(data[: error.start + 1].splitlines())}"
        message = f"{place}: the file is not UTF-8"
        raise InvalidInput("import.encoding", message, hint="save it as CSV UTF-8", field=place) from None
    return from_csv(text) if kind == CSV else from_json(text)
