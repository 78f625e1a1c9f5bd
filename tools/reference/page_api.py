"""api.md: every path that central serves to programs and sites, from the one table of routes."""

import inspect
from pathlib import Path

from markdown import code, page, table

from fieldpost.front.api import routes as api_routes
from fieldpost.front.api.openapi import plain
from fieldpost.front.auth import Access
from fieldpost.front.http import problems
from fieldpost.front.link import routes as link_routes
from fieldpost.front.link.routes import SOCKETS

ROUTES = (*api_routes.ROUTES, *link_routes.ROUTES)

INTRODUCTION = """\
Made by `make docs` from the table of routes (`src/fieldpost/front/api/routes.py`). What is not in it, or among the
console's pages, is not reachable.

A program shows its token in the header `Authorization: Bearer TOKEN`. Bodies and answers are JSON in UTF-8; a field or
a query parameter that nobody knows is refused by its name. `GET /api/v1/openapi.json` describes all of it by OpenAPI
3.1, with every field, answer and status. *Who* names the least role that is served: a viewer sees, an
operator retries and discards, an admin sets up lists, channels and sites. Paths for a *site* take a site's token and
show that site its own notifications only."""

PROBLEMS = """\
## Problems

Every answer that is not a success is `application/problem+json` (RFC 9457) with `status`, a stable `code` (listed in
[errors](errors.md)), a `detail` for people, and where they are known the `field` and a `hint`. The kind of error and
the beginning of its code give the status; the first row that fits counts. A conflict over a notification also says how
it stands now (`current_status`, `current_version`)."""


def render(_root: Path) -> str:
    rows = [
        (code(route.method), code(plain(route.path)), who(route.access), _said(route))
        for route in (*api_routes.ROUTES, *link_routes.ROUTES)
    ]
    rows += [
        (code("WebSocket"), code(path), who(Access.SITE), _first_sentence(serve)) for path, serve in SOCKETS.items()
    ]
    statuses = [
        (code(kind.__name__), code(f"{prefix}…") if prefix else "any other", code(status))
        for kind, prefix, status in problems.STATUSES
    ]
    return page(
        "API",
        INTRODUCTION,
        table(("method", "path", "who", "what"), rows),
        PROBLEMS,
        table(("kind", "code", "HTTP status"), statuses),
    )


def who(access: Access) -> str:
    return {Access.ANYONE: "anyone", Access.SITE: "site", Access.JOIN: "who has a code"}.get(access, access.value)


def _said(route: object) -> str:
    return _first_sentence(route.handler)  # type: ignore[attr-defined]


def _first_sentence(function: object) -> str:
    words = " ".join((inspect.getdoc(function) or "").split())
    # A docstring may begin with the path itself, which stands in the row already.
    if words.startswith("`") and "`: " in words:
        words = words.partition("`: ")[2]
    sentence = words.partition(". ")[0].rstrip(".")
    return sentence[:1].upper() + sentence[1:] + "." if sentence else ""
