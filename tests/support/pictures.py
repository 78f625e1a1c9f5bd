"""Pictures of the console with the sample world, or the console itself. Run in the folder `tests`:

    python -m support.pictures serve [--port 8400]              a console that lives on, until interrupted
    python -m support.pictures picture PATH… [--to FOLDER]      pictures of these addresses: light, dark and on a phone
    python -m support.pictures pictures [--to FOLDER]           of every page; this is what `make pictures` does

A picture is of the world as it stands at 03:14 on 15 November 2026, so that it changes only when the console does.
An address may be a path, or the name of something notable in the world: `partial`, `held`, `act running` and so on.
"""

import argparse
import asyncio
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog
from playwright.async_api import Browser, BrowserContext, async_playwright

from fieldpost.front.server import CentralServer
from support.browser import find_chromium
from support.console import log_in
from support.databases import SqliteFiles
from support.front import served
from support.page_addresses import Address, addresses
from support.world import NIGHT, World, live_on, open_world

PROJECT = Path(__file__).resolve().parent.parent.parent
PICTURES = PROJECT / "build" / "pictures"
README = PROJECT / "docs" / "pictures"
SHOWN = {"front": "health.png", "notifications-one": "notification.png"}
"""What the README shows, by the name of the address: as much of it as a screen holds, by day."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
FORMS = {"light": ("light", 1280, 800), "dark": ("dark", 1280, 800), "phone": ("light", 390, 844)}
"""Colour scheme, width and height."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="support.pictures", description="the console with the sample world")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve")
    serving.add_argument("--port", type=int, default=8400)
    for name in ("picture", "pictures"):
        command = commands.add_parser(name)
        command.add_argument("--to", type=Path, default=PICTURES)
        command.add_argument("--as", dest="who", default="admin", help="viewer, operator or admin")
        command.add_argument("--form", choices=FORMS, help="only this one")
        if name == "picture":
            command.add_argument("path", nargs="+")
        else:
            command.add_argument("--readme", action="store_true", help="make those of the README anew, too")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if given.command == "serve":
        asyncio.run(serve(given.port))
        return
    given.to.mkdir(parents=True, exist_ok=True)
    forms = [given.form] if given.form else list(FORMS)
    readme = README if getattr(given, "readme", False) else None
    made = asyncio.run(take(getattr(given, "path", None), given.to, given.who, forms, readme))
    print("\n".join(str(path) for path in made))


async def serve(port: int) -> None:
    async with _fresh(datetime.now(UTC)) as world:
        server = CentralServer(world.front.app, socket.create_server(("127.0.0.1", port)))
        serving = asyncio.create_task(server.serve())
        await server.ready()
        print(f"The console is at {server.url}")
        for role in ("viewer", "operator", "admin"):
            print(f"  name {role}, password {world.front.password(role)}")
        living = asyncio.create_task(live_on(world))
        # The server ends by itself when it is interrupted.
        await serving
        living.cancel()


async def take(
    paths: Sequence[str] | None, folder: Path, who: str, forms: Sequence[str], readme: Path | None = None
) -> list[Path]:
    """Pictures of these addresses, or of all; where they are."""
    made = []
    async with _fresh(NIGHT) as world, served(world.front.app) as url, _chromium() as browser:
        wanted = addresses(world.places) if paths is None else [_named(path, world) for path in paths]
        for form in forms:
            context = await opened(browser, url, form)
            first = await context.new_page()
            await log_in(world.front, first, who)
            await first.close()
            stranger = await opened(browser, url, form)
            for address in wanted:
                page = await (stranger if address.is_for_anyone else context).new_page()
                await page.clock.set_fixed_time(NIGHT)
                await page.goto(address.path)
                made.append(folder / f"{address.name}-{form}.png")
                await page.screenshot(path=made[-1], full_page=True)
                if readme is not None and form == "light" and address.name in SHOWN:
                    made.append(readme / SHOWN[address.name])
                    await page.screenshot(path=made[-1])
                await page.close()
    return made


async def opened(browser: Browser, url: str, form: str) -> BrowserContext:
    """As a person looks at it: on a desk by day or night, or on a phone."""
    scheme, width, height = FORMS[form]
    return await browser.new_context(
        base_url=url,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": height},
        timezone_id="Europe/Amsterdam",
        locale="en-GB",
    )


def _named(path: str, world: World) -> Address:
    if path in world.notable:
        kind = "bulk-actions" if path.startswith("act ") else "notifications"
        return Address(path.replace(" ", "-"), f"/{kind}/{world.notable[path]}", False)
    if path in world.places and path.startswith("abonnement"):
        return Address(path, f"/subscriptions/{world.places[path]}", False)
    for known in addresses(world.places):
        if path in (known.name, known.path):
            return known
    name = "".join(c if c.isalnum() else "-" for c in path).strip("-") or "front"
    return Address(name, path, False)


@asynccontextmanager
async def _fresh(end: datetime) -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="fieldpost-pictures-") as name:
        folder = Path(name)
        (folder / "world").mkdir()
        async with open_world(SqliteFiles(folder).fresh(folder / "world"), end) as world:
            yield world


@asynccontextmanager
async def _chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield browser
        await browser.close()


if __name__ == "__main__":
    main()
