"""A person at the console without a browser: pages by GET, forms as they stand on a page, no script at all."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from support.front import Front


@dataclass
class Visitor:
    client: httpx2.AsyncClient
    page: httpx2.Response
    """The one that he looks at."""

    async def look(self, path: str, **query: str) -> str:
        self.page = await self.client.get(path, params=query or None)
        return self.text

    async def send(self, action: str, **fields: str) -> httpx2.Response:
        """The form with this action on the page, with its hidden fields; where it redirects to, he follows."""
        found = re.search(rf'<form[^>]*method="post"[^>]*action="{re.escape(action)}".*?</form>', self.page.text, re.S)
        assert found, f"there is no form to {action} here:\n{self.page.text}"
        hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', found[0])
        given = {name: html.unescape(value) for name, value in hidden}
        answer = await self.client.post(action, data=given | fields)
        self.page = await self.client.get(answer.headers["location"]) if answer.status_code == 303 else answer
        return answer

    @property
    def text(self) -> str:
        """What the page says, without its tags."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.page.text)).split())


@asynccontextmanager
async def visiting(front: Front, name: str) -> AsyncIterator[Visitor]:
    """Logged in as this person."""
    async with front.client() as client:
        visitor = Visitor(client, await client.get("/login"))
        answer = await visitor.send("/login", name=name, password=front.password(name))
        assert answer.status_code == 303, visitor.text
        yield visitor
