"""`console`: every page of the console over real HTTP, on a table with a year of data (`bench/grown.py`).

5,000,000 rows (200,000 with --quick, or --rows), on both stores. Central's front runs in its own process, without the
dispatcher. Pages are requested one after the other over one connection, in rounds with a different order each, so that
a slow moment of the machine affects all pages. Every GET page is requested, with typical filters, words and times, each
round for another site, list or user. If this file has no values for a page, the benchmark names it and stops.

The main figures are those of a user of a busy central: shared reads (`watch.shared_read`) are about a second old, and
now and then one request pays for a fresh one. Then every page is requested a few more times without any shared read:
the p95 of these first requests is reported too, and separately for the slowest page.

Figures are pages per second (median); the notes give p50 and p95 in milliseconds and the size of the first load,
headers included, compressed. The references for notifications, health and parked groups are the same queries written by
hand, one after the other on one connection (`bench/table_by_hand.py`), without session, menu and HTML. Other pages have
no reference.
"""

import asyncio
import gzip
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from bench.console_central import FIRST
from bench.grown import SITES, GrownStore, grown
from bench.grown_beside import STORY, bulk_action_id, call_id, event_id, intent_id, subscription_id
from bench.harness import Figure, Report, percentile
from bench.material import LISTS
from bench.stores import Stores
from bench.table_by_hand import Hand, HandPostgres, HandSqlite
from fieldpost.central.store.figures import kpis
from fieldpost.core.kpi import Thresholds
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.times import to_microseconds, to_text
from fieldpost.front.auth import Access

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.page_addresses import NEEDED, fill, seen

P95_MS_MAX = 100
FIRST_LOAD_BYTES_MAX = 150_000
BY = Thresholds()
ERROR = "451 try again later"

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_COUNTS = {"site-": SITES, "ops": LISTS, "person-": 20}
"""Number of rows of each kind in a grown store."""
_NUMBERED = re.compile(rf"\b({'|'.join(_COUNTS)})7\b")

Call = Callable[[], Awaitable[object]]
Browsers = tuple[aiohttp.ClientSession, aiohttp.ClientSession]
"""A logged-in visitor and an anonymous one."""


@dataclass
class Visit:
    """One URL and its measurements."""

    path: str
    by_hand: Call | None = None
    is_for_anyone: bool = False
    """Requested without a session: with one it redirects."""
    first_load_bytes: int = 0
    took_s: list[float] = field(default_factory=list)
    first_took_s: list[float] = field(default_factory=list)
    """Without shared reads."""
    hand_took_s: list[float] = field(default_factory=list)


async def run(report: Report, _stores: Stores, quick: bool, rows: Sequence[int] = ()) -> None:
    for count in rows or ((200_000,) if quick else (5_000_000,)):
        with grown(count) as built:
            for kind in ("sqlite", "postgresql"):
                kept = await built.build(kind)
                async with _served(kept) as (browsers, places), _hand(kept) as hand:
                    visits = _visits(places, hand, kept)
                    await _measure(browsers, visits, 7 if quick else 40, 2 if quick else 20)
                _tell(report, f"console {kind}", visits, count)


def _visits(places: Mapping[str, str], hand: Hand, kept: GrownStore) -> list[Visit]:
    """Every page without and with typical filters."""
    by_hand: dict[str, Call] = {
        "/": lambda: hand.kpis(BY),
        "/notifications": _outbox(hand, lambda: hand.page(None)),
        "/parked-groups": hand.parked_groups,
    }
    visits = []
    for page in seen():
        path = fill(page.path, places) + NEEDED.get(page.path, "").format_map(places)
        visits.append(Visit(path, by_hand.get(page.path), page.access is Access.ANYONE))
        base = fill(page.path, places)
        visits += [Visit(f"{base}?{urlencode(query)}", asked) for query, asked in _filters(page.path, hand, kept)]
    return visits


def _filters(path: str, hand: Hand, kept: GrownStore) -> list[tuple[dict[str, str], Call | None]]:
    long_ago = kept.now - timedelta(days=100)
    times = {"from": to_text(long_ago - timedelta(days=1)), "to": to_text(long_ago)}
    known: dict[str, list[tuple[dict[str, str], Call | None]]] = {
        "/": [({"span": "hour"}, None), ({"span": "week"}, None)],
        "/notifications": [
            ({"status": "parked"}, lambda: hand.of_status("parked")),
            ({"status": "delivered"}, lambda: hand.of_status("delivered")),
            ({"site": "site-7"}, lambda: hand.of_term("site")),
            ({"list": "ops7"}, lambda: hand.of_term("list")),
            ({"type": "email"}, lambda: hand.page(None)),
            (times, lambda: hand.before(long_ago)),
            ({"stuck": "true"}, lambda: hand.stuck(kept.now - BY.stuck_after)),
            ({"overdue": "true"}, None),
            ({"subject": "flood"}, lambda: hand.of_term("rare")),
            ({"subject": "stopped"}, lambda: hand.of_term("common")),
            ({"status": "parked", "error": fingerprint_key(ERROR)}, None),
            ({"status": "parked", "site": "site-7", "subject": "pump stopped"}, None),
        ],
        "/bulk-actions/new": [({"verb": "discard", "site": "site-7"}, None)],
        "/cached-calls": [({"status": "parked"}, None), ({"site": "site-7"}, None), ({"stuck": "true"}, None)],
        "/sites": [({"state": "issues"}, None), ({"name": "site-7"}, None)],
        "/audit": [
            ({"actor": "person-7"}, None),
            ({"site": "site-7"}, None),
            ({"target": "ops7"}, None),
            ({"status": "parked"}, None),
            (times, None),
        ],
    }
    return [(query, asked and _outbox(hand, asked)) for query, asked in known.get(path, [])]


def _outbox(hand: Hand, the_list: Call) -> Call:
    """Tiles, tab counts and list."""

    async def ask() -> None:
        await hand.kpis(BY)
        await hand.counts(kpis.COUNT_MAX)
        await the_list()

    return ask


async def _measure(browsers: Browsers, visits: Sequence[Visit], rounds: int, first_rounds: int) -> None:
    for visit in visits:
        visit.first_load_bytes = await _first_load(browsers[visit.is_for_anyone], visit.path)
    for number in range(rounds + 1):
        for visit in random.Random(number).sample(visits, len(visits)):
            took_s = await _ask(browsers, visit, number)
            if number:  # the first warms up
                visit.took_s.append(took_s)
        for visit in visits:
            if visit.by_hand is not None and number:
                began = time.perf_counter()
                await visit.by_hand()
                visit.hand_took_s.append(time.perf_counter() - began)
    for number in range(first_rounds):
        for visit in visits:
            visit.first_took_s.append(await _ask(browsers, visit, number, {FIRST: "yes"}))


async def _ask(browsers: Browsers, visit: Visit, number: int, headers: Mapping[str, str] | None = None) -> float:
    """Duration of the request."""
    path = _of_another(visit.path, number)
    began = time.perf_counter()
    async with browsers[visit.is_for_anyone].get(path, headers=headers, allow_redirects=False) as answer:
        await answer.read()
    took_s = time.perf_counter() - began
    if answer.status != 200:
        raise RuntimeError(f"console: {path} answered {answer.status}, so it cannot be measured")
    return took_s


def _of_another(path: str, number: int) -> str:
    """The same page for another site, list or user, unless it is about one message."""
    if _ID.search(path):
        return path
    return _NUMBERED.sub(lambda found: f"{found[1]}{(7 + number) % _COUNTS[found[1]]}", path)


async def _first_load(session: aiohttp.ClientSession, path: str) -> int:
    """Bytes that a browser without a cache loads: the page and its assets."""
    async with session.get(path, allow_redirects=False) as answer:
        page = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"console: {path} answered {answer.status}, so it cannot be measured")
        count = _transferred(answer, page)
        text = _plain(answer, page).decode()
    for url in sorted(set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))):
        async with session.get(url.replace("&amp;", "&")) as answer:
            count += _transferred(answer, await answer.read())
    return count


def _transferred(answer: aiohttp.ClientResponse, body: bytes) -> int:
    return len(body) + sum(len(name) + len(value) + 4 for name, value in answer.raw_headers)


def _plain(answer: aiohttp.ClientResponse, body: bytes) -> bytes:
    return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body


def _tell(report: Report, name: str, visits: Sequence[Visit], rows: int) -> None:
    for visit in visits:
        rates, hand = [1 / t for t in visit.took_s], [1 / t for t in visit.hand_took_s]
        median = statistics.median(rates)
        notes = f"p50 {_ms(visit.took_s, 0.5):.1f} ms, p95 {_ms(visit.took_s):.1f} ms"
        notes += f", first looks p95 {_ms(visit.first_took_s):.1f} ms"
        if hand:
            notes += f", by hand {1000 / statistics.median(hand):.1f} ms"
        notes += f"; first load {visit.first_load_bytes / 1000:.0f} kB; {rows:,} rows"
        reference = statistics.median(hand) if hand else None
        spread = (max(rates) - min(rates)) / median
        report.add(Figure(f"{name} {_short(visit.path)}", median, "pages/s", reference, spread, notes))
    slowest = max(visits, key=lambda visit: _ms(visit.took_s))
    wanted = f"{slowest.path}; at most {P95_MS_MAX} is wanted"
    report.add(Figure(f"{name} slowest p95", _ms(slowest.took_s), "ms", notes=wanted))
    slowest = max(visits, key=lambda visit: _ms(visit.first_took_s))
    report.add(Figure(f"{name} slowest first looks p95", _ms(slowest.first_took_s), "ms", notes=slowest.path))
    heaviest = max(visits, key=lambda visit: visit.first_load_bytes)
    wanted = f"{heaviest.path}; at most {FIRST_LOAD_BYTES_MAX / 1000:.0f} is wanted"
    report.add(Figure(f"{name} heaviest first load", heaviest.first_load_bytes / 1000, "kB", notes=wanted))


def _ms(took_s: Sequence[float], part: float = 0.95) -> float:
    return percentile(took_s, part) * 1000


def _short(path: str) -> str:
    """Replace ids in names, because they carry no meaning."""
    path = _ID.sub("ID", path)
    path = re.sub(r"link=[^&]*", "link=…", path)
    return path if len(path) <= 44 else path[:43] + "…"


@asynccontextmanager
async def _served(kept: GrownStore) -> AsyncIterator[tuple[Browsers, dict[str, str]]]:
    """Visitors of a central on this store, and values for the parameters of its pages."""
    central = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.console_central",
        kept.url,
        str(to_microseconds(kept.now)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert central.stdin is not None
    assert central.stdout is not None
    try:
        url, cookie, token_id, link = (await central.stdout.readline()).decode().split()
        places = {
            "notification_id": STORY,
            "call_id": call_id(7),
            "intent_id": intent_id(50),
            "action_id": bulk_action_id(1),
            "token_id": token_id,
            "link": link,
            "site": "site-7",
            "sites": "site-7",
            "lists": "ops7",
            "channels": "mail",
            "users": "bench",
            "event_id": event_id(7),
            "topics": "topic-7",
            "subscription_id": subscription_id(7),
            "error_key": fingerprint_key(ERROR),
        }
        headers = {"Accept-Encoding": "gzip", "Sec-Fetch-Site": "none", "Accept": "text/html"}
        jar = aiohttp.CookieJar(unsafe=True)
        jar.update_cookies({"fieldpost-session": cookie})
        async with (
            aiohttp.ClientSession(url, headers=headers, cookie_jar=jar, auto_decompress=False) as logged_in,
            aiohttp.ClientSession(url, headers=headers, auto_decompress=False) as stranger,
        ):
            yield (logged_in, stranger), places
    finally:
        central.stdin.close()
        await central.wait()


@asynccontextmanager
async def _hand(kept: GrownStore) -> AsyncIterator[Hand]:
    hand: Hand = HandSqlite(kept) if kept.url.startswith("sqlite") else await HandPostgres.connect(kept)
    try:
        yield hand
    finally:
        await hand.close()
