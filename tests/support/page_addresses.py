"""Every address of the console that there is to see, made from its table of pages and the sample world.

A new page is walked by itself as soon as its parameters can be filled: by their own name, or by the noun before them in
the path. Otherwise `addresses` says which value is missing, so that no page goes unseen by the pictures and by the walk
for accessibility.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import PageRoute
from fieldpost.front.console.pages import PAGES

NOT_SEEN: dict[str, str] = {
    "/live": "a stream",
    "/export/lists": "a file",
    "/login/oidc": "leads away, to the identity provider",
    "/login/oidc/callback": "leads away, from the identity provider",
}
"""What answers a GET and is no page, with the reason."""

CHANNEL_TYPES = ("email", "webhook", "teams", "slack", "telegram", "sms", "ntfy", "pagerduty", "apprise")
"""The types with a form of their own."""

NEEDED: dict[str, str] = {
    "/set-password": "?link={link}",
    "/bulk-actions/new": "?verb=retry&pace=stages&error={error_key}",
    "/sites/{name:path}/rejected/confirm": "?verb=resubmit&id={notification_id}",
    "/sites/{name:path}/remove-node": "?node=1",
    "/cached-calls/{call_id}": "?site={site}",
    "/cached-calls/confirm": "?verb=retry&call={call_id}%20{site}",
}
"""What must follow a page's path, with values of `World.places`."""

MORE: dict[str, Sequence[tuple[str, str]]] = {
    "/": (("hour", "?span=hour"), ("week", "?span=week")),
    "/sites": (("issues", "?state=issues"), ("none", "?name=unheard-of")),
    "/notifications": (
        ("parked", "?status=parked"),
        ("filtered", "?status=parked&site=plant-north&subject=filter"),
        ("stuck", "?stuck=true"),
        ("overdue", "?overdue=true"),
        ("none", "?subject=unheard-of"),
        ("within", "?last=day&list=maintenance"),
        ("wrong", "?status=unheard-of"),
    ),
    "/cached-calls": (
        ("parked", "?status=parked"),
        ("away", "?site=island"),
        ("none", "?target=unheard-of"),
        ("wrong", "?status=unheard-of"),
    ),
    "/intents": (("site", "?site=island"), ("none", "?site=unheard-of")),
    "/lists/{name:path}": (("remove", "?confirm=remove"),),
    "/channels/{name:path}": (("remove", "?confirm=remove"), ("reset", "?confirm=reset")),
    "/new/channel": tuple((kind, f"?type={kind}") for kind in CHANNEL_TYPES),
    "/events": (("topic", "?topic=orders"), ("none", "?topic=unheard-of")),
    "/subscriptions": (("none", "?owner=unheard-of"),),
    "/subscriptions/{subscription_id}": (("remove", "?confirm=remove"),),
    "/routes/{route_id}": (("remove", "?confirm=remove"),),
    "/try-routes": (("found", "?topic=orders&attributes=country%3DNL"), ("none", "?topic=unheard-of")),
    "/templates/{topic}": (("remove", "?confirm=remove"),),
    "/topics/{name}": (("archive", "?confirm=archive"),),
    "/audit": (("errors", "?status=failed,parked,discarded"), ("none", "?actor=unheard-of")),
    "/settings": (("search", "?q=lease"),),
}
"""Other forms of a page that are worth a look: a name for each, and what follows the page's path."""


@dataclass(frozen=True)
class Address:
    name: str
    """For a file: `notification`, `notifications-parked`."""
    path: str
    is_for_anyone: bool
    is_first: bool = False
    """The page as it is, not one of its other forms."""


def addresses(places: Mapping[str, str]) -> list[Address]:
    """Of every page, in the order of the table; KeyError names a parameter for which `places` has no value."""
    found = []
    for page in seen():
        path = fill(page.path, places) + NEEDED.get(page.path, "").format_map(places)
        name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\{.*?\}", "one", page.path)).strip("-") or "front"
        is_for_anyone = page.access is Access.ANYONE
        found.append(Address(name, path, is_for_anyone, is_first=True))
        found += [Address(f"{name}-{form}", path + rest, is_for_anyone) for form, rest in MORE.get(page.path, ())]
    return found


def seen() -> list[PageRoute]:
    """The pages: whatever answers a GET, but for what is told apart above."""
    return [page for page in PAGES if page.method == "GET" and page.path not in NOT_SEEN]


def fill(path: str, places: Mapping[str, str]) -> str:
    """The path with its parameters filled."""
    parts: list[str] = []
    for part in path.split("/"):
        if not part.startswith("{"):
            parts.append(part)
            continue
        name = part.strip("{}").partition(":")[0]
        value = places.get(name) or places.get(parts[-1])
        if value is None:
            raise KeyError(
                f"{path}: give {name!r} a value in World.places, or say in visits.NOT_SEEN why it is no page"
            )
        parts.append(quote(value, safe=""))
    return "/".join(parts)
