"""The JSON for an incoming webhook.

Style `blocks`, for Slack: a header with the subject, sections with the body, and a line with severity, site, id and
link. Every text of ours is `plain_text` without emoji, so that Slack takes no character for markup; `&`, `<` and `>`
are escaped, as in all texts for Slack. Limits: 150 characters in a header, 3,000 in a section, 50 blocks. Slack also
rejects messages of more than about 13,200 characters in all blocks together (`msg_blocks_too_long`); ours have at most
12,000, which makes at most nine blocks.

Style `text`, for Mattermost and Rocket.Chat: one text in a code block, in which both leave every character as it is.
"""

import json
import re
from collections.abc import Iterator

from fieldpost.central.adapters.provider import describe_origin
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit

HEADER_MAX = 150
SECTION_MAX = 3000
CHARACTERS_MAX = 12_000
TEXT_MAX = 4000
"""Of a message of style text: Rocket.Chat's limit is 5,000, Mattermost's 16,383."""
_BACKTICKS = re.compile(r"`+")


def slack_blocks(envelope: Envelope) -> Fitted[bytes]:
    """The message in style blocks."""
    origin = escape(describe_origin(envelope))
    end = [_plain(origin)]
    if envelope.link is not None:
        end.append({"type": "mrkdwn", "text": f"<{escape(envelope.link)}|Open in Fieldpost>"})

    def compose(subject: str, body: str) -> tuple[int, str, list[dict[str, object]]]:
        title = escape(subject)
        is_header = len(title) <= HEADER_MAX
        parts = [*([] if is_header else _sections(title)), *_sections(escape(body.rstrip()))]
        blocks: list[dict[str, object]] = [{"type": "header", "text": _plain(title)}] if is_header else []
        blocks += [{"type": "section", "text": _plain(part)} for part in parts]
        blocks.append({"type": "context", "elements": end})
        return len(title) + sum(map(len, parts)), title, blocks

    fitted = fit(envelope.subject, envelope.body, compose, lambda made: made[0], CHARACTERS_MAX)
    _, title, blocks = fitted.message
    message = {"text": title, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False, "blocks": blocks}
    return Fitted(_encoded(message), fitted.truncated_to)


def chat_text(envelope: Envelope) -> Fitted[bytes]:
    """The message in style text."""
    end = describe_origin(envelope)
    link = f"\n{envelope.link}" if envelope.link is not None else ""

    def compose(subject: str, body: str) -> str:
        text = "\n\n".join(part for part in (subject, body.rstrip(), end) if part)
        # A code block ends at a fence that is as long as the one that began it.
        longest = max((len(found) for found in _BACKTICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"{fence}\n{text}\n{fence}{link}"

    fitted = fit(envelope.subject, envelope.body, compose, len, TEXT_MAX)
    return Fitted(_encoded({"text": fitted.message}), fitted.truncated_to)


def escape(text: str) -> str:
    """A text for Slack: the three characters that begin its markup are replaced."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> dict[str, object]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _sections(text: str) -> Iterator[str]:
    """The text in parts of at most 3,000 characters; at the end of a line if possible, and never within an escape."""
    while len(text) > SECTION_MAX:
        end = text.rfind("\n", SECTION_MAX // 2, SECTION_MAX)
        if end < 0:
            end = SECTION_MAX
            started = text.rfind("&", end - 4, end)
            if started >= 0 and ";" not in text[started:end]:
                end = started
            yield text[:end]
            text = text[end:]
        else:
            yield text[:end]
            text = text[end + 1 :]
    if text:
        yield text


def _encoded(message: object) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
