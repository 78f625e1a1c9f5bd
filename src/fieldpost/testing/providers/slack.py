"""Incoming webhooks of Slack, with its limits on messages and blocks."""

import html
from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, RequestLimit, id_in, json_of

HEADER_MAX = 150
SECTION_MAX = 3000
CONTEXT_ELEMENTS_MAX = 10
BLOCKS_MAX = 50
CHARACTERS_MAX = 13_200


class FakeSlack(ProviderServer):
    """The hooks of one workspace: `slack.hook("night-shift")` is the URL of one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: dict[str, tuple[int, str]] = {}
        """The answer of a hook: status and text, such as 404 and `no_service`."""
        self._of_hook = RequestLimit(1, timedelta(seconds=1))

    def hook(self, name: str, url: str | None = None) -> str:
        """The URL of a hook; at another server if given."""
        return f"{url or self.url}/services/T00000000/B00000000/{name}"

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        name = request.path.rpartition("/")[2]
        if not request.path.startswith("/services/") or request.method != "POST":
            return HttpReaction(status=404, body=b"no_service")
        if name in self.errors:
            status, text = self.errors[name]
            return HttpReaction(status=status, body=text.encode())
        said = json_of(request)
        if said is None:
            return HttpReaction(status=400, body=b"invalid_payload")
        if (error := _error(said)) is not None:
            return HttpReaction(status=400, body=error.encode())
        if wait_s := self.wait_s(self._of_hook, name):
            return HttpReaction(status=429, body=b"rate_limited", headers={"Retry-After": str(ceil(wait_s))})
        shown = _shown(said)
        return ProviderCopy(name, id_in(shown), shown, said), HttpReaction(body=b"ok")


def _error(said: dict[str, Any]) -> str | None:
    blocks = said.get("blocks")
    if blocks is None:
        return None if said.get("text") else "no_text"
    if not isinstance(blocks, list) or not 0 < len(blocks) <= BLOCKS_MAX:
        return "invalid_blocks"
    texts = []
    for block in blocks:
        match block:
            case {"type": "header", "text": {"type": "plain_text", "text": str(text)}} if 0 < len(text) <= HEADER_MAX:
                texts.append(text)
            case {"type": "section", "text": {"text": str(text)}} if 0 < len(text) <= SECTION_MAX:
                texts.append(text)
            case {"type": "context", "elements": [*elements]} if 0 < len(elements) <= CONTEXT_ELEMENTS_MAX:
                texts += [element["text"] for element in elements]
            case _:
                return "invalid_blocks"
    if sum(map(len, texts)) > CHARACTERS_MAX:
        return "msg_blocks_too_long"
    is_escaped = all("<" not in text and ">" not in text for text in _plain_texts(blocks))
    return None if is_escaped else "invalid_blocks_format"


def _shown(said: dict[str, Any]) -> str:
    """The text as Slack shows it."""
    if "blocks" not in said:
        return str(said["text"])
    return "\n".join(html.unescape(text) for text in _plain_texts(said["blocks"]))


def _plain_texts(blocks: Sequence[dict[str, Any]]) -> list[str]:
    parts = [part for block in blocks for part in (block.get("elements") or [block["text"]])]
    return [part["text"] for part in parts if part["type"] == "plain_text"]
