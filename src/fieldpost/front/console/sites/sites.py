"""The sites page: all sites, those with issues first, and the form to add a site.

The list has pages of 100. All users share one read of the fleet, so a page costs only its own rows.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from starlette.responses import Response

from fieldpost.central.operate.sites import AddedSite, Invitation
from fieldpost.central.watch.issues import IssueCode, site_path
from fieldpost.central.watch.sites import SiteState, worst_first
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.sites.health import SiteCondition
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.request import EMPTY_FORM, MenuLine, PageRequest, PageRoute, SubmittedForm

PATH = "/sites"
PAGE_SIZE = 100
VALID_HOURS = (("1", "1 hour"), ("24", "1 day"), ("168", "7 days"))
METHODS = (("code", "a one-time code (recommended)"), ("token", "a token, for automated setup"))

_WITH_ISSUES = (SiteCondition.OFFLINE, SiteCondition.LATE, SiteCondition.FAILING, SiteCondition.STOPPED)
STATES: Mapping[str, tuple[str, Callable[[SiteState], bool]]] = {
    "issues": ("with issues", lambda site: site.condition in _WITH_ISSUES or _reported(site, "parked", "rejected") > 0),
    "offline": ("offline", lambda site: site.condition is SiteCondition.OFFLINE),
    "stopped": ("stopped", lambda site: site.condition is SiteCondition.STOPPED),
    "late": ("late", lambda site: site.condition is SiteCondition.LATE),
    "failing": ("cannot forward", lambda site: site.condition is SiteCondition.FAILING),
    "online": ("online", lambda site: site.condition is SiteCondition.ONLINE),
    "waiting": ("with waiting messages", lambda site: bool(site.depth)),
    "parked": ("with parked calls", lambda site: _reported(site, "parked") > 0),
    "rejected": ("with rejected notifications", lambda site: _reported(site, "rejected") > 0),
    "new": ("not enrolled yet", lambda site: site.condition is SiteCondition.NEW),
    "revoked": ("revoked", lambda site: site.condition is SiteCondition.REVOKED),
}
"""The states to filter by: label and predicate."""


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
    query = request.http.query_params
    state, name = query.get("state", ""), query.get("name", "").strip()
    fleet = await request.watch.sites.all()
    found = fitting(fleet.sites, state, name)
    pages = max(1, -(-len(found) // PAGE_SIZE))
    number = min(_whole(query.get("page")), pages)
    fields = {key: value for key, value in (("state", state), ("name", name)) if value}
    return request.page(
        "sites.html",
        form,
        as_of=fleet.as_of,
        sites=found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE],
        count=len(found),
        all_count=len(fleet.sites),
        page_size=PAGE_SIZE,
        number=number,
        pages=pages,
        link_to=lambda page: address(PATH, fields, page=str(page) if page > 1 else None),
        state=state,
        name=name,
        states=[(key, words) for key, (words, _) in STATES.items()],
        here=address(PATH, fields, page=str(number) if number > 1 else None),
        central=request.own_url or "",
        valid_hours=VALID_HOURS,
        methods=METHODS,
    )


def fitting(sites: Sequence[SiteState], state: str, name: str) -> list[SiteState]:
    """The sites in this state whose names contain all these words, those with issues first."""
    if state and state not in STATES:
        raise InvalidInput("state.unknown", f"state must be one of {', '.join(STATES)}", field="state")
    words = name.casefold().split()
    is_fit = STATES[state][1] if state else lambda _: True
    return worst_first(
        site for site in sites if is_fit(site) and all(word in site.record.name.casefold() for word in words)
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
        command=command,
        token=token,
        expires_at=expires_at,
        own_path=site_path(given.name),
        is_local=(urlsplit(central).hostname or "") in ("localhost", "127.0.0.1", "::1"),
        here=site_path(given.name),
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


def _reported(site: SiteState, *names: str) -> int:
    if site.health is None or site.condition is SiteCondition.REVOKED:
        return 0
    return sum(getattr(site.health.report, name) for name in names)


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
