"""The slack adapter: one request per incoming webhook."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from importlib.resources import files

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.hooks import HookAdapter, HookRequests
from fieldpost.central.adapters.provider import ProviderRequests, check_names
from fieldpost.central.adapters.slack.classify import classify
from fieldpost.central.adapters.slack.message import chat_text, slack_blocks
from fieldpost.core.delivery.adapter import Envelope, SettingField
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.errors import parse_choice
from fieldpost.outbound.client import HttpAnswer


class SlackStyle(StrEnum):
    """The form of a message."""

    BLOCKS = "blocks"
    TEXT = "text"


class SlackAdapter(HookAdapter):
    """Posts notifications to incoming webhooks. A target is a label; its secret is the URL of the hook."""

    type = "slack"
    fields = (
        SettingField(
            name="style",
            doc="blocks for Slack, text for Mattermost and Rocket.Chat",
            kind="choice",
            choices=("blocks", "text"),
            default="blocks",
        ),
    )
    guide = (files("fieldpost.central.adapters.slack") / "guide.md").read_text("utf-8")
    channel_rate: Rate | None = None
    list_rate: Rate | None = Rate(1, timedelta(seconds=1))

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, ("style",), self.type)
        given = settings.get("style")
        return {"style": parse_choice(SlackStyle, str(given or "blocks"), "settings.choice", "style").value}

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        is_slack = settings["style"] == "blocks"
        return HookRequests(envelope, settings, slack_blocks(envelope) if is_slack else chat_text(envelope))

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return classify(answer, retry_after, is_slack=settings["style"] == "blocks")
