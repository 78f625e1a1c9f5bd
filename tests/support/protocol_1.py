"""Protocol 1 as it was first recorded: what an older end understands, kept apart from what the code has become.

Never changed: a site installed once may be older than central for years, and central older than a new site.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

RECORDING = Path(__file__).parent.parent / "contract" / "recordings" / "protocol-1-data.jsonl"


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    notification_id: str
    list_name: str
    subject: str
    body: str
    enqueued_at: str | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    site: str | None = None


class Submit(msgspec.Struct, frozen=True, tag_field="t", tag="submit"):
    seq: int
    items: tuple[Item, ...]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    notification_id: str
    verdict: str
    code: str | None = None
    error: str | None = None
    wait_s: float | None = None


class Ack(msgspec.Struct, frozen=True, tag_field="t", tag="ack"):
    seq: int
    results: tuple[Result, ...]
    credits: int


class Refusal(msgspec.Struct, frozen=True, tag_field="t", tag="refusal", omit_defaults=True):
    code: str
    error: str
    seq: int | None = None
    wait_s: float | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="t", tag="hello"):
    protocol: int
    version: str
    credits: int = 500


Message = Hello | Submit | Ack | Refusal

decode = msgspec.json.Decoder(Message).decode


@dataclass(frozen=True)
class Recorded:
    """One message as it went over the line."""

    sender: str
    way: str
    content: bytes

    @property
    def message(self) -> Any:
        return decode(self.content)

    @property
    def is_of_the_protocol(self) -> bool:
        return b"from_the_future" not in self.content


def recording(way: str) -> list[Recorded]:
    """What was recorded on this way (`websocket` or `post`), in its order."""
    lines = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    return [Recorded(line["from"], line["by"], line["content"].encode()) for line in lines if line["by"] == way]
