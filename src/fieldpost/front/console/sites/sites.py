"""The sites page: all sites, those with issues first, and the form to add a site.

The list has pages of 100. All users share one read of the fleet, so a page costs only its own rows.
"""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

from starlette.responses import Response

from fieldpost.central.operate.sites import AddedSite, Invitation
from fieldpost.central.watch.issue import IssueCode, site_path
from fieldpost.central.watch.sites import SiteFilter, worst_first
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.search.filters import SITE_FILTERS
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address, read_filter
from fieldpost.front.console.kit.request import EMPTY_FORM, MenuLine, PageRequest, PageRoute, SubmittedForm

PATH = "/sites"
PAGE_SIZE = 100
VALID_HOURS = (("1", "1 hour"), ("24", "1 day"), ("168", "7 days"))
METHODS = (("code", "a one-time code (recommended)"), ("token", "a token, for automated setup"))

STATE_WORDS = {
    "issues": "with issues",
    "offline": "offline",
    "stopped": "stopped",
    "late": "late",
    "failing": "cannot forward",
    "online": "online",
    "waiting": "with waiting messages",
    "parked": "with parked calls",
    "rejected": "with rejected notifications",
    "new": "no report yet",
    "revoked": "revoked",
}


async def add(request: PageRequest) -> Response:
    form = await request.form()
    name, operate = form.get("name", "").strip(), request.operate.sites
    try:
        central = central_of(request, form)
        if form.get("by") == "token":
            return credentials_page(request, await operate.add(request.actor, name), central, f"./{name}")
        return credentials_page(
            request, await operate.invite(request.actor, name, valid_of(form)), central, f"./{name}"
        )
    except InvalidInput as error:
        return await page(request, SubmittedForm.rejected(form, error))
    except Conflict as error:
        return await page(request, SubmittedForm.rejected(form, error, at="name", status=409))


async def page(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    parsed = read_filter(request.http.query_params, SITE_FILTERS, SiteFilter.parse)
    fleet = await request.watch.sites.all()
    found = worst_first(filter(parsed.wanted.matches, fleet.sites)) if parsed.is_readable else []
    pages = max(1, -(-len(found) // PAGE_SIZE))
    number = min(_whole(request.http.query_params.get("page")), pages)
    return request.page(
        "sites.html",
        form if parsed.is_readable else replace(form, status=422),
        as_of=fleet.as_of,
        sites=found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE],
        count=len(found),
        all_count=len(fleet.sites),
        page_size=PAGE_SIZE,
        number=number,
        pages=pages,
        link_to=lambda page: address(PATH, parsed.read, page=str(page) if page > 1 else None),
        parsed=parsed,
        state_words=STATE_WORDS,
        here=address(PATH, parsed.read, page=str(number) if number > 1 else None),
        central=request.own_url or "",
        valid_hours=VALID_HOURS,
        methods=METHODS,
    )


def credentials_page(request: PageRequest, given: Invitation | AddedSite, central: str, folder: str) -> Response:
    """The command to run at the site; this page is shown only once."""
    if isinstance(given, Invitation):
        command = f"fieldpost site join {shlex.quote(f'{given.code}@{central}')} --folder {shlex.quote(folder)}"
        token, expires_at = None, given.expires_at
    else:
        name = shlex.quote(given.name)
        command = f"fieldpost site init {shlex.quote(folder)} --name {name} --central {shlex.quote(central)}"
        token, expires_at = given.token, None
    return request.page(
        "site_credentials.html",
        name=given.name,
        node=given.node,
        command=command,
        token=token,
        expires_at=expires_at,
        own_path=site_path(given.name),
        is_local=(urlsplit(central).hostname or "") in ("localhost", "127.0.0.1", "::1"),
    )


def valid_of(form: Mapping[str, str]) -> timedelta:
    hours = form.get("valid_h") or VALID_HOURS[0][0]
    if hours not in dict(VALID_HOURS):
        raise InvalidInput("site.valid", f"valid_h must be one of {', '.join(dict(VALID_HOURS))}", field="valid_h")
    return timedelta(hours=int(hours))


def central_of(request: PageRequest, form: Mapping[str, str]) -> str:
    """The URL of central as seen from the site, from the form."""
    text = form.get("central", "").strip() or request.own_url or ""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
    except ValueError:
        is_url = False
    if not is_url:
        raise InvalidInput(
            "site.central",
            "central must be a URL such as https://fieldpost.example.org",
            hint="to have it filled in, set front.public_url",
            field="central",
        )
    return text.rstrip("/")


def _whole(text: str | None) -> int:
    return max(1, int(text)) if text and text.isascii() and text.isdecimal() and len(text) < 7 else 1


MENU = MenuLine(
    "Sites",
    PATH,
    "Now",
    "s",
    badge=(IssueCode.SITE_OFFLINE, IssueCode.SITE_LATE, IssueCode.SITE_STOPPED),
    badge_label="not reporting",
)
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER), PageRoute("POST", PATH, add, Access.ADMIN))
