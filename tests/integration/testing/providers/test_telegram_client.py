"""Telegram's own client is content with our fake of Telegram, so the fake is not our misreading."""

import json

import pytest
from telegram import Bot, MessageEntity
from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, RetryAfter

from fieldpost.testing.providers import FakeTelegram

TOKEN = "123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


async def test_client_sends_and_parses_each_error() -> None:
    async with FakeTelegram(TOKEN) as telegram, Bot(TOKEN, base_url=f"{telegram.url}/bot") as bot:
        telegram.unknown.add("404")
        telegram.blocked.add("403")
        telegram.moved["-5"] = -1001234567890
        sent = await bot.send_message(4711, "Pump 3 is hot", entities=[MessageEntity(MessageEntity.BOLD, 0, 6)])
        assert sent.text == "Pump 3 is hot"
        assert [copy.text for copy in telegram.copies] == ["Pump 3 is hot"]
        with pytest.raises(BadRequest, match="Chat not found"):
            await bot.send_message(404, "x")
        with pytest.raises(Forbidden):
            await bot.send_message(403, "x")
        with pytest.raises(ChatMigrated) as moved:
            await bot.send_message(-5, "x")
        assert moved.value.new_chat_id == -1001234567890
        with pytest.raises(BadRequest, match="too long"):
            await bot.send_message(4711, "x" * 4097)
        for _ in range(20):
            await bot.send_message(-7, "x")
        with pytest.raises(RetryAfter) as paused:
            await bot.send_message(-7, "x")
        assert json.loads(telegram.refused[-1].body)["parameters"]["retry_after"] == paused.value._retry_after.seconds


async def test_a_wrong_token_is_rejected() -> None:
    async with FakeTelegram(TOKEN) as telegram:
        with pytest.raises(InvalidToken):
            async with Bot("1:wrong", base_url=f"{telegram.url}/bot"):
                pass
