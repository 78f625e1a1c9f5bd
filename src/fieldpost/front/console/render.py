"""Templates to pages. Everything is escaped unless a template of ours says otherwise, and none does."""

from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

import fieldpost
from fieldpost.core.times import to_text
from fieldpost.front.console.static_files import StaticFiles

TEMPLATES = Path(__file__).parent / "templates"

_GLYPHS = {"pending": "○", "retrying": "↻", "delivered": "✓", "parked": "■", "discarded": "✕"}


class Renderer:
    def __init__(self, files: StaticFiles) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._environment.globals |= {"static": files.url, "version": fieldpost.__version__, "glyphs": _GLYPHS}
        self._environment.filters |= {"iso": to_text, "clock": _clock, "duration": _duration, "short": _short}

    def page(self, template: str, status: int, **values: object) -> Response:
        text = self._environment.get_template(template).render(values)
        # A subject may hold what cannot be encoded only if the checks at the door failed; a page is still a page then.
        return HTMLResponse(text.encode("utf-8", "replace"), status)


def _clock(moment: datetime, as_of: datetime | None = None) -> str:
    """`08:53:27` on the day of `as_of`, with the date otherwise; in UTC."""
    moment = moment.astimezone(UTC)
    if as_of is not None and moment.date() == as_of.astimezone(UTC).date():
        return moment.strftime("%H:%M:%S")
    is_this_year = as_of is not None and moment.year == as_of.year
    return f"{moment.day} {moment.strftime('%b %H:%M' if is_this_year else '%b %Y %H:%M:%S')}"


def _duration(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds // 60_000} min {milliseconds % 60_000 // 1000} s"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
