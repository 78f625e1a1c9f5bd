"""Import of lists from a file, with preview; export of all lists."""

from starlette.responses import Response

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput
from fieldpost.core.lists import plan_mark
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import PageRequest, PageRoute, error_text, redirect
from fieldpost.front.console.lists import PATH as LISTS_PATH
from fieldpost.front.console.lists import path_of
from fieldpost.front.files.lists import from_csv, from_json, to_csv, to_json
from fieldpost.link.codec import check_json

PATH = "/import/lists"
EXPORT_PATH = "/export/lists"
FORM_BYTES_MAX = 4 * 1024 * 1024
"""The command line accepts files four times as large."""


async def page(request: PageRequest) -> Response:
    return _page(request, "")


async def preview(request: PageRequest) -> Response:
    """Show the changes of the file without applying them."""
    text = (await request.form(FORM_BYTES_MAX)).get("text", "")
    return await _preview(request, text)


async def apply(request: PageRequest) -> Response:
    """Apply the previewed changes, all or none."""
    form = await request.form(FORM_BYTES_MAX)
    text = form.get("text", "")
    try:
        await request.operate.list_files.import_all(request.actor, _specs(text), form.get("plan", ""))
    except (InvalidInput, Conflict) as error:
        return await _preview(request, text, error)
    return redirect(LISTS_PATH, "imported")


async def export(request: PageRequest) -> Response:
    """All lists as a file; audited, because it contains all addresses."""
    format_ = request.http.query_params.get("format", "csv")
    if format_ not in ("csv", "json"):
        raise InvalidInput("export.format", "format must be csv or json", field="format")
    lists = await request.operate.list_files.export(request.actor)
    text, kind = (to_csv(lists), "text/csv") if format_ == "csv" else (to_json(lists), "application/json")
    headers = {"Content-Disposition": f'attachment; filename="lists.{format_}"', "Cache-Control": "no-store"}
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)


async def _preview(request: PageRequest, text: str, conflict: FieldpostError | None = None) -> Response:
    files = request.operate.list_files
    warning = None if conflict is None else error_text(conflict)
    try:
        specs = _specs(text)
        if faults := files.faults(specs):
            return _page(request, text, 422, faults=[fault.message for fault in faults], warning=warning)
        changes = await files.plan(specs)
    except (InvalidInput, Conflict) as error:
        return _page(request, text, 422, faults=[error.message], warning=warning)
    present = {found.name for found in await request.operate.lists.all()}
    return _page(
        request,
        text,
        409 if conflict is not None else 200,
        changes=[change for change in changes if not change.is_empty],
        unchanged=[change.name for change in changes if change.is_empty],
        untouched=len(present.difference(change.name for change in changes)),
        plan=plan_mark(changes),
        warning=warning,
    )


def _page(request: PageRequest, text: str, status: int = 200, **values: object) -> Response:
    shown: dict[str, object] = {"faults": (), "changes": None, "unchanged": (), "untouched": 0, "plan": ""}
    return request.page("import_lists.html", status, text=text, path_of=path_of, **shown | values)


def _specs(text: str) -> list[ListSpec]:
    """The lists in the file: JSON if it starts with a brace, else CSV."""
    if text.lstrip().startswith("{"):
        check_json(text.encode())
        return from_json(text)
    return from_csv(text)


ROUTES = (
    PageRoute("GET", PATH, page, Access.ADMIN),
    PageRoute("POST", f"{PATH}/preview", preview, Access.ADMIN),
    PageRoute("POST", PATH, apply, Access.ADMIN),
    PageRoute("GET", EXPORT_PATH, export, Access.ADMIN),
)
