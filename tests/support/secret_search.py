"""What anybody could read of a running central: answers of its API and commands, and everything in its store."""

import asyncio
from pathlib import Path

import aiohttp
import asyncpg

from support.commands import fieldpost_here
from support.running_central import RunningCentral


class Reader:
    """Runs commands and asks the API as an administrator, and keeps all that it is shown."""

    def __init__(self, node: RunningCentral, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.token = (folder / "api-token").read_text().strip()
        self.shown: dict[str, str] = {}

    async def run(self, *arguments: str) -> None:
        environ = {"FIELDPOST_URL": self.node.url, "FIELDPOST_TOKEN": self.token, "COLUMNS": "300"}
        ran = await asyncio.to_thread(fieldpost_here, *arguments, environ=environ, folder=self.folder)
        self.shown[f"fieldpost {' '.join(arguments)}"] = (ran.stdout + ran.stderr).decode()

    async def get(self, path: str) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(self.node.url + path) as answer:
            self.shown[path] = await answer.text()
            return self.shown[path]

    async def post(self, path: str, body: object) -> str:
        """The answer to a request, also if it is an error."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.node.url}/api/v1/{path}"
        async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as answer:
            text = await answer.text()
        self.shown[f"POST {path} {len(self.shown)}"] = text
        return text

    async def post_as(self, token: str, path: str, body: object) -> int:
        """The status of the answer to an application with this token."""
        session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
        async with session, session.post(self.node.url + path, json=body) as answer:
            self.shown[f"POST {path} {len(self.shown)}"] = f"{answer.headers} {await answer.text()}"
            return answer.status


async def everything_stored(store_url: str) -> dict[str, str]:
    """Every row of every table as text. A SQLite file is searched as bytes, with the rest of the folder."""
    if not store_url.startswith("postgresql"):
        file = Path(store_url.removeprefix("sqlite:///"))
        return {str(f): f.read_text("latin-1") for f in file.parent.glob(f"{file.name}*") if f.is_file()}
    connection = await asyncpg.connect(store_url)
    try:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
        return {
            row["tablename"]: str(await connection.fetch(f'select t::text from "{row["tablename"]}" t'))
            for row in tables
        }
    finally:
        await connection.close()
