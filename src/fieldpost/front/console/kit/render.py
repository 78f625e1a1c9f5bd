"""Rendering of templates. All values are escaped; no template opts out."""

from datetime import UTC, datetime
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from starlette.responses import HTMLResponse, Response

import fieldpost
from fieldpost.core.quantities import age, number, offset, recent, size
from fieldpost.core.times import to_text
from fieldpost.front.console.kit.static_files import StaticFiles
from fieldpost.front.console.kit.times import local_text

TEMPLATES = Path(__file__).parent.parent / "templates"

_GLYPHS = {"pending": "○", "retrying": "↻", "delivered": "✓", "parked": "■", "discarded": "✕", "failed": "▲"}


class Renderer:
    def __init__(self, files: StaticFiles) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            bytecode_cache=_compiled,
        )
        self._environment.globals |= {"static": files.url, "version": fieldpost.__version__, "glyphs": _GLYPHS}
        self._environment.filters |= {
            "iso": to_text,
            "clock": _clock,
            "local": local_text,
            "duration": _duration,
            "age": age,
            "number": number,
            "size": size,
            "offset": offset,
            "recent": recent,
            "short": _short,
            "axis": _axis,
        }

    def page(self, template: str, status: int, **values: object) -> Response:
        text = self._environment.get_template(template).render(values)
        # Ingest rejects text that cannot be encoded; if some slips through, the page must still render.
        return HTMLResponse(text.encode("utf-8", "replace"), status)


class _Compiled(BytecodeCache):
    """Compiles each template once per process, even if tests create many applications."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if kept := self._kept.get(bucket.key):
            bucket.bytecode_from_string(kept)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key] = bucket.bytecode_to_string()


_compiled = _Compiled()


def _clock(moment: datetime, as_of: datetime | None = None) -> str:
    """`08:53:27` on the day of `as_of`, with the date otherwise; in UTC."""
    moment = moment.astimezone(UTC)
    if as_of is not None and moment.date() == as_of.astimezone(UTC).date():
        return moment.strftime("%H:%M:%S")
    is_this_year = as_of is not None and moment.year == as_of.year
    return f"{moment.day} {moment.strftime('%b %H:%M' if is_this_year else '%b %Y %H:%M:%S')}"


def _axis(moment: datetime, is_of_days: bool) -> str:
    """Label of an axis: `15 Nov` or `08:45`, in UTC."""
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment.strftime('%b')}" if is_of_days else moment.strftime("%H:%M")


def _duration(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds // 60_000} min {milliseconds % 60_000 // 1000} s"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
