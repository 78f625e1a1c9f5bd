"""The settings of this node: changed ones first, then all by section."""

from itertools import groupby

from starlette.responses import Response

from fieldpost.core.search.tokens import tokenize
from fieldpost.core.setting import EffectiveSetting
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute

PATH = "/settings"


async def page(request: PageRequest) -> Response:
    search = request.http.query_params.get("q", "").strip()[:200]
    effective_settings = request.backend.effective_settings
    found = [one for one in effective_settings.settings if _matches(one, search)]
    return request.page(
        "settings.html",
        node_id=effective_settings.node_id,
        search=search,
        changed=[one for one in found if not one.is_default],
        sections=[(name, list(rows)) for name, rows in groupby(found, key=lambda one: one.section)],
        count=len(found),
        count_all=len(effective_settings.settings),
    )


def _matches(one: EffectiveSetting, search: str) -> bool:
    """Whether every search word starts a word of the name, value, origin or description."""
    words = tokenize(
        f"{one.key} {one.name.replace('_', ' ')} {one.value} {one.environment} {one.origin} {one.description}"
    )
    return all(any(word.startswith(part) for word in words) for part in tokenize(search))


MENU = MenuLine("Settings", PATH, "Records", "e", Access.ADMIN)
ROUTES = (PageRoute("GET", PATH, page, Access.ADMIN),)
