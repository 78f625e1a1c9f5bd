"""What came from outside, on every page of the console: shown as text, kept to its own direction, and no endless cell.

Whatever the table of pages holds is walked, over a world in which everything that others may name or say is hostile.
"""

import re
from html.parser import HTMLParser

import httpx2
import pytest

from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.actor import Role
from fieldpost.core.bulk import BulkVerb
from fieldpost.core.delivery.outcome import Held, PermanentFailure
from fieldpost.core.sites.intent import IntentKind
from fieldpost.core.times import to_text
from fieldpost.link.messages import CallRow, CommandResult, Health, Telemetry
from support.front import ADMIN, OPERATOR
from support.page_addresses import addresses
from support.world import World, open_world

RTL = "\u202e"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
LINK = "javascript:alert(1)"
TURNED = "gpj.exe"
SAID = f"{EVIL} {LINK} {RTL}{TURNED}"
SITE = "<i>evil</i>\"'"
"""Names of sites stand in addresses, too."""
RAW = re.compile(r"<script>alert|<img src=x|<i>evil|(?:href|src|action)=\"?\s*javascript:", re.IGNORECASE)
CELL_MAX = 20_000


@pytest.mark.bad_input(56)
@pytest.mark.threat(11)
async def test_hostile_text_is_escaped_and_reverses_no_text_on_every_page(sqlite_url: str) -> None:
    async with open_world(sqlite_url) as world:
        await _fill(world)
        seen = 0
        wrong: dict[str, list[str]] = {}
        async with world.front.client() as client, world.front.client() as stranger:
            await _log_in(world, client)
            for address in addresses(world.places):
                page = await (stranger if address.is_for_anyone else client).get(address.path)
                assert page.status_code in (200, 422), (address.path, page.status_code)
                told = _Told()
                told.feed(page.text)
                if found := [*RAW.findall(page.text), *told.loose, *told.endless, *told.code]:
                    wrong[address.path] = found
                seen += "&lt;script&gt;alert" in page.text
    assert wrong == {}
    assert seen >= 12, "the hostile texts were not where they belong"


class _Told(HTMLParser):
    """Finds text that runs the other way and is not held by an element which keeps that to itself, or is held there
    together with words of ours, which it would turn around; text without an end that is not folded away; and code or
    styles that a page has of itself, or fetches from elsewhere."""

    KEEPING = frozenset({"bdi", "pre", "textarea", "option", "title"})
    VOID = frozenset({"meta", "link", "input", "img", "br", "hr", "wbr", "path", "line", "circle", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loose: list[str] = []
        self.endless: list[str] = []
        self.code: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.code.append(tag)
        self.code += [name for name in given if name == "style" or name.startswith(("on", "hx-on"))]
        for name in ("src", "href", "action", "formaction", "hx-get"):
            if not (given.get(name) or "/").startswith(("/", "#", "?")) or (given.get(name) or "").startswith("//"):
                self.code.append(f"{name}={given[name]}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        _, turn, rest = data.rpartition(RTL)
        is_ours = rest.strip(" \n…") not in TURNED and "<script>" not in rest and "title" not in self.open
        if turn and (is_ours or not self.KEEPING & set(self.open)):
            self.loose.append(" ".join(data.split())[-80:])
        if len(data) > CELL_MAX and "details" not in self.open:
            self.endless.append(f"{len(data)} characters")


async def _fill(world: World) -> None:
    """Everything that somebody may name or say."""
    front, operate, now = world.front, world.front.operate, world.clock.now()
    centre, ingest = front.centre, front.centre.ingest
    await operate.sites.add(ADMIN, SITE)
    await operate.lists.add(ADMIN, ListSpec(name=EVIL, targets=("ops@example.org",), channel="harbour-relay"))
    centre.adapter.always[EVIL] = Held(SAID, phase="connect")
    await world.say(EVIL, SAID, SAID, site=SITE, script=EVIL)
    centre.adapter.answer("ops", PermanentFailure(SAID, phase="rcpt", reply=SAID))
    parked = await world.say(
        "ops", SAID, "x" * 250_000, site=SITE, script=EVIL, instance=EVIL, execution_id=EVIL, parent_execution_id=EVIL
    )
    await centre.deliver()
    act = await operate.bulk_actions.start(OPERATOR, BulkVerb.RETRY, [Chosen(parked, 1)], EVIL)
    await operate.tokens.add(ADMIN, EVIL, Role.VIEWER)
    call = CallRow(
        call_id=world.make_id(),
        category="external_call",
        target=SAID,
        status="parked",
        version=1,
        last_error=SAID,
        instance=SAID,
        script=SAID,
        created_at=to_text(now),
        updated_at=to_text(now),
    )
    await ingest.mirrors.telemetry(
        SITE, Telemetry(incarnation="x", after=0, until=1, sent_at=to_text(now), rows=(call,))
    )
    await ingest.health.keep(
        SITE,
        Health(
            sent_at=to_text(now),
            version=SAID[:60],
            backlog={EVIL: 1},
            events={EVIL: 1},
            is_forwarding=False,
            forward_error=SAID,
        ),
    )
    for kind in (IntentKind.QUERY_EVENTS, IntentKind.LIST_REJECTED):
        (given,) = await operate.intents.create(OPERATOR, SITE, kind, arguments={"limit": 20}, reason=EVIL)
        await world.front.commands.intents.to_send([given])
        row = {"id": SAID, "at": to_text(now), "subject": SAID, "message": SAID, "kind": SAID, "severity": SAID}
        row |= {"message_id": SAID, "notification_id": SAID, "list_name": SAID, "error": SAID, "category": SAID}
        answer = CommandResult(intent_id=given.intent_id, outcome="applied", detail=SAID, rows=(row,))
        await world.front.commands.intents.settle(SITE, answer)
    places = {"sites": SITE, "site": SITE, "lists": EVIL, "notification_id": parked, "action_id": act.action_id}
    world.places |= places | {"call_id": call.call_id, "intent_id": given.intent_id}


async def _log_in(world: World, client: httpx2.AsyncClient) -> None:
    login = await client.get("/login")
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', login.text)
    assert found is not None
    form = {"csrf": found[1], "name": "admin", "password": world.front.password("admin")}
    answer = await client.post("/login", data=form)
    assert answer.status_code == 303
