"""Clients of the ZGW API."""

from urllib.parse import quote

from starlette.responses import Response

from fieldpost.central.operate.zgw.clients import ClientShown
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.zgw.client import OVERLAP, ZgwScope
from fieldpost.front.auth import Access
from fieldpost.front.console.events.topics import words
from fieldpost.front.console.kit.request import EMPTY_FORM, MenuLine, PageRequest, PageRoute, SubmittedForm, redirect

PATH = "/zgw-clients"
SCOPES = (
    ("publiceren", "publiceren: publishes"),
    ("consumeren", "consumeren: subscribes"),
    ("publiceren,consumeren", "both"),
)
_FIELDS = {"scopes": "scopes", "kanalen": "kanalen", "secret": "client_secret"}
NOTICES = {"revoked": "Client revoked. Its tokens are rejected."}


async def page(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    return request.page(
        "zgw_clients.html",
        form,
        clients=await request.operate.zgw_clients.all(),
        scopes=SCOPES,
        scope=ZgwScope.PUBLISH.value,
        as_of=request.operate.logins.now(),
        notice=request.notice(NOTICES),
    )


async def add(request: PageRequest) -> Response:
    form = await request.form()
    try:
        shown = await request.operate.zgw_clients.add(
            request.actor,
            form.get("client_id", "").strip(),
            [scope for scope in form.get("scopes", "").split(",") if scope],
            words(form.get("kanalen", "")),
            form.get("client_secret", "") or None,
        )
    except (InvalidInput, Conflict) as error:
        kept = {name: value for name, value in form.items() if name != "client_secret"}
        return await page(request, SubmittedForm.rejected(kept, error, at=_FIELDS.get(error.field or "", "client_id")))
    return _show_once(request, shown)


async def confirm_rotate(request: PageRequest) -> Response:
    found = await request.operate.zgw_clients.get(request.path("client_id"))
    return request.confirm(
        title=f"Rotate the secret of {found.client_id}?",
        text="A new secret is generated and shown once. Tokens that the present one signs are valid for"
        f" {OVERLAP.total_seconds() / 3600:.0f} hours more.",
        action=f"{path_of(found.client_id)}/rotate",
        button="Rotate",
        back=PATH,
    )


async def rotate(request: PageRequest) -> Response:
    await request.form()
    return _show_once(request, await request.operate.zgw_clients.rotate(request.actor, request.path("client_id")))


async def confirm_revoke(request: PageRequest) -> Response:
    found = await request.operate.zgw_clients.get(request.path("client_id"))
    return request.confirm(
        title=f"Revoke {found.client_id}?",
        text="Its tokens are rejected immediately. Its abonnementen stay, and get notifications.",
        action=f"{path_of(found.client_id)}/revoke",
        button="Revoke",
        back=PATH,
    )


async def revoke(request: PageRequest) -> Response:
    await request.form()
    await request.operate.zgw_clients.revoke(request.actor, request.path("client_id"))
    return redirect(PATH, "revoked")


def path_of(client_id: str) -> str:
    return f"{PATH}/{quote(client_id, safe='')}"


def _show_once(request: PageRequest, shown: ClientShown) -> Response:
    # The secret is shown only in this response.
    url = request.backend.options.public_url.rstrip("/") or "CENTRAL"
    return request.page("zgw_client_secret.html", shown=shown, url=url)


MENU = MenuLine("ZGW clients", PATH, "Records", "z", Access.ADMIN)
ROUTES = (
    PageRoute("GET", PATH, page, Access.ADMIN),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{client_id:path}}/rotate", confirm_rotate, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{client_id:path}}/rotate", rotate, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{client_id:path}}/revoke", confirm_revoke, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{client_id:path}}/revoke", revoke, Access.ADMIN),
)
