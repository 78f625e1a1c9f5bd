"""Static files, held in memory and cached by browsers under a version that changes with the content."""

import mimetypes
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.responses import Response

from fieldpost.front.console.kit.compression import gzip as compressed

FOLDER = Path(__file__).parent.parent / "static"
KINDS = {".css", ".js", ".svg"}
STYLE = "style"
"""The style sheets in this folder are concatenated, in order of their names, into `console.css`."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str
    version: str
    small: bytes | None
    """The compressed content, if that is worth it."""


class StaticFiles:
    """Serves files by exact name, so a path cannot escape the folder."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(FOLDER).as_posix(): _file(path.name, path.read_bytes())
            for path in FOLDER.rglob("*")
            if path.suffix in KINDS and path.parent.name != STYLE
        }
        sheets = sorted((FOLDER / STYLE).glob("*.css"))
        self._files["console.css"] = _file("console.css", b"\n".join(sheet.read_bytes() for sheet in sheets))

    def url(self, name: str) -> str:
        """The URL of the file, which browsers cache until its content changes."""
        return f"/static/{name}?v={self._files[name].version}"

    def response(self, name: str, version: str | None, *, gzip: bool = False) -> Response | None:
        file = self._files.get(name)
        if file is None:
            return None
        is_known = version == file.version
        caching = "public, max-age=31536000, immutable" if is_known else "no-cache"
        headers = {"Cache-Control": caching, "Vary": "Accept-Encoding"}
        if not gzip or file.small is None:
            return Response(file.content, headers=headers, media_type=file.media_type)
        return Response(file.small, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.media_type)


@cache
def _file(name: str, content: bytes) -> StaticFile:
    """Compress once per content and process; the best compression level is slow."""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    small = compressed(content, level=9)
    is_worth_it = len(small) < 0.9 * len(content)
    return StaticFile(content, kind, sha256(content).hexdigest()[:12], small if is_worth_it else None)
