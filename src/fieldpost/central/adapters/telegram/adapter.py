"""The telegram adapter: one `sendMessage` per chat."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import USER_AGENT, ProviderAdapter, ProviderRequests, check_names, parsed_url
from fieldpost.central.adapters.telegram.classify import classify
from fieldpost.central.adapters.telegram.message import telegram_text
from fieldpost.core.delivery.adapter import Envelope, SettingField
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret, check_secret
from fieldpost.outbound.client import HttpAnswer
from fieldpost.outbound.url import check_url

URL_DEFAULT = "https://api.telegram.org"
_CHAT = re.compile(r"(?:-?[1-9][0-9]{0,18}|@[A-Za-z][A-Za-z0-9_]{3,31})(?::[1-9][0-9]{0,9})?", re.ASCII)
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{20,100}", re.ASCII)


class TelegramAdapter(ProviderAdapter):
    """Sends notifications as a bot. A target is a chat id or a public name, with `:thread` for a topic of a group."""

    type = "telegram"
    secrets = frozenset({"token"})
    fields = (
        SettingField(name="token", doc="the bot's token from @BotFather, such as 123456:ABC-DEF1234", is_required=True),
        SettingField(
            name="url",
            doc="base URL of the Bot API, for a Bot API server of your own",
            default=URL_DEFAULT,
            is_advanced=True,
            is_destination=True,
        ),
    )
    guide = (files("fieldpost.central.adapters.telegram") / "guide.md").read_text("utf-8")
    channel_rate: Rate | None = Rate(25, timedelta(seconds=1))
    list_rate: Rate | None = Rate(20, timedelta(minutes=1))

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, ("token", "url"), self.type)
        if (given := settings.get("token")) is None:
            raise InvalidInput("settings.missing", "token is required", field="token")
        token = given if isinstance(given, Secret) else check_secret(given, "token")
        if not _TOKEN.fullmatch(token.reveal()):
            raise InvalidInput(
                "settings.invalid", "token must be digits, a colon and at least 20 letters or digits", field="token"
            )
        url = check_url(settings.get("url") or URL_DEFAULT, "admin")
        return {"token": token, "url": str(url).rstrip("/")}

    def check_target(self, address: str) -> str:
        if not _CHAT.fullmatch(address):
            raise InvalidInput(
                "chat.invalid",
                "target must be a chat id such as -1001234567890 or a public name such as @plant_alarms",
                hint="add :THREAD for a topic of a group, such as -1001234567890:7",
                field="target",
            )
        return address

    def target_key(self, address: str) -> str:
        return address.lower()

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        return _Messages(envelope, settings)

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return classify(answer, retry_after)


class _Messages(ProviderRequests):
    def __init__(self, envelope: Envelope, settings: Mapping[str, object]) -> None:
        fitted = telegram_text(envelope)
        super().__init__(settings, fitted.truncated_to)
        text, entities = fitted.message
        self._shared = f'"text":{json.dumps(text)},"entities":{entities},"link_preview_options":{{"is_disabled":true}}'
        token = settings["token"]
        assert isinstance(token, Secret)
        self._url = parsed_url(f"{settings['url']}/bot{token.reveal()}/sendMessage")

    def request(self, address: str) -> HttpRequest:
        chat, _, thread = address.partition(":")
        chat_id = json.dumps(chat if chat.startswith("@") else int(chat))
        in_thread = f',"message_thread_id":{thread}' if thread else ""
        body = f'{{"chat_id":{chat_id}{in_thread},{self._shared}}}'.encode()
        headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json"}
        return HttpRequest(url=self._url, headers=headers, body=body)
