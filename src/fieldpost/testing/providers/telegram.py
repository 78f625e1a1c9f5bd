"""Telegram's Bot API: `sendMessage` and `getMe`, with its limits."""

import re
from datetime import timedelta
from math import ceil
from typing import Any
from urllib.parse import parse_qsl

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import (
    ProviderCopy,
    ProviderServer,
    RequestLimit,
    id_in,
    json_of,
    json_reaction,
)

TEXT_UNITS_MAX = 4096
BOT = {"id": 123456, "is_bot": True, "first_name": "Fieldpost", "username": "fieldpost_bot"}


class FakeTelegram(ProviderServer):
    """The API for one bot. Every chat exists unless it is in `unknown`, `blocked` or `moved`."""

    def __init__(self, token: str, **options: Any) -> None:
        super().__init__(**options)
        self.token = token
        self.unknown: set[str] = set()
        self.blocked: set[str] = set()
        self.moved: dict[str, int] = {}
        self._of_bot = RequestLimit(30, timedelta(seconds=1))
        self._of_group = RequestLimit(20, timedelta(minutes=1))

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        found = re.fullmatch(r"/bot([^/]*)/(\w+)", request.path)
        if found is None:
            return telegram_error(404, "Not Found")
        if found[1] != self.token:
            return telegram_error(401, "Unauthorized")
        if found[2] == "getMe":
            return json_reaction(200, {"ok": True, "result": BOT})
        if found[2] != "sendMessage":
            return telegram_error(404, "Not Found: method not found")
        return self._send(request)

    def _send(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        said = json_of(request) or _form_of(request)
        chat, text = str(said.get("chat_id", "")), said.get("text")
        if not chat or chat in self.unknown:
            return telegram_error(400, "Bad Request: chat not found")
        if chat in self.moved:
            moved = self.moved[chat]
            return telegram_error(
                400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=moved
            )
        if chat in self.blocked:
            return telegram_error(403, "Forbidden: bot was blocked by the user")
        if not isinstance(text, str) or not text.strip():
            return telegram_error(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > TEXT_UNITS_MAX:
            return telegram_error(400, "Bad Request: message is too long")
        if "parse_mode" in said:
            return telegram_error(400, "Bad Request: can't parse entities")
        wait_s = self.wait_s(self._of_bot)
        if not wait_s and chat.startswith(("-", "@")):
            wait_s = self.wait_s(self._of_group, chat)
        if wait_s:
            after_s = ceil(wait_s)
            return telegram_error(429, f"Too Many Requests: retry after {after_s}", retry_after=after_s)
        thread = f":{said['message_thread_id']}" if "message_thread_id" in said else ""
        copy = ProviderCopy(chat + thread, id_in(text), text, said)
        chat_id = int(chat) if not chat.startswith("@") else -1001
        result = {"message_id": len(self.copies) + 1, "date": 0, "chat": {"id": chat_id, "type": "private"}}
        return copy, json_reaction(200, {"ok": True, "result": {**result, "text": text}})


def telegram_error(status: int, description: str, **parameters: int) -> HttpReaction:
    """An error as the Bot API words it."""
    said: dict[str, object] = {"ok": False, "error_code": status, "description": description}
    return json_reaction(status, {**said, "parameters": parameters} if parameters else said)


def _form_of(request: ReceivedRequest) -> dict[str, Any]:
    """The parameters of a request by a form, as Telegram's own clients send it."""
    return dict(parse_qsl(request.body.decode("utf-8", "replace")))
