"""What `fieldpost doctor --remote` looks at: the whole installation, as the running central tells of it.

Whatever cannot be asked ends the command as any other would: a doctor that reached nobody has found nothing well.
"""

from collections.abc import Callable, Iterator

from fieldpost.cli.client import Client, JsonAnswer
from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.errors import Denied

NAMES_MAX = 5


def examine(client: Client) -> list[Check]:
    """Each check by its name; those of sites bear the site's."""
    me = client.get("me")
    checks = [Check("api", CheckVerdict.OK, f"{client.url} answers; {me['name']} is {me['role']}")]
    for look in (_troubles, _nodes, _breakers, _figures, _sites):
        try:
            checks += look(client.get)
        except Denied as refused:
            checks.append(Check(look.__name__.strip("_"), CheckVerdict.WARNING, f"not looked at: {refused}"))
    return checks


def _troubles(get: Callable[..., JsonAnswer]) -> Iterator[Check]:
    troubles = get("health")["troubles"]
    yield Check("central", CheckVerdict.FAILING if troubles else CheckVerdict.OK, "; ".join(troubles) or "is well")


def _nodes(get: Callable[..., JsonAnswer]) -> Iterator[Check]:
    found = get("nodes")
    running = [node["node_id"] for node in found["nodes"] if node["state"] == "running"]
    lost = [node["node_id"] for node in found["nodes"] if node["state"] == "lost"]
    detail = f"{len(running)} running" + (f", lost: {_names(lost)}" if lost else "")
    yield Check("nodes", CheckVerdict.WARNING if lost or not running else CheckVerdict.OK, detail)
    leader = found["leader"]
    yield Check(
        "leader", CheckVerdict.OK if leader else CheckVerdict.WARNING, leader or "nobody leads: nothing is purged"
    )


def _breakers(get: Callable[..., JsonAnswer]) -> Iterator[Check]:
    blocked = [one["key"] for one in get("breakers")["breakers"] if one["health"] == "blocked"]
    detail = f"blocked: {_names(blocked)}" if blocked else "none is blocked"
    yield Check("breakers", CheckVerdict.FAILING if blocked else CheckVerdict.OK, detail)


def _figures(get: Callable[..., JsonAnswer]) -> Iterator[Check]:
    figures = get("kpis")["kpis"]
    for name in ("parked", "stuck", "overdue"):
        if name in figures:
            count = int(figures[name])
            yield Check(name, CheckVerdict.WARNING if count else CheckVerdict.OK, f"{count} notifications")


def _sites(get: Callable[..., JsonAnswer]) -> Iterator[Check]:
    found = [site for site in get("site-health")["sites"] if site["revoked_at"] is None]
    if not found:
        yield Check("sites", CheckVerdict.OK, "there is none yet")
    for site in found:
        yield Check(f"site {site['name']}", *_state(site))


def _state(site: JsonAnswer) -> tuple[CheckVerdict, str]:
    """The verdict on one site, and why."""
    if site["reported_at"] is None:
        return CheckVerdict.WARNING, f"{site['link']}: it has never reported"
    troubles = []
    if site["link"] != "online":
        troubles.append(f"last heard of at {site['reported_at']}")
    if site["is_forwarding"] is False:
        troubles.append(f"does not get through: {site['forward_error'] or 'no reason given'}")
    troubles += [f"{site[name]} {name}" for name in ("parked", "rejected") if site[name]]
    verdict = (
        CheckVerdict.FAILING if site["link"] == "offline" else CheckVerdict.WARNING if troubles else CheckVerdict.OK
    )
    return verdict, ": ".join([site["link"], *([", ".join(troubles)] if troubles else [])])


def _names(names: list[str]) -> str:
    return ", ".join(names[:NAMES_MAX]) + (f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else "")
