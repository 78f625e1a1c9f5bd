"""The console's own files, held in memory under names that change with their content."""

import mimetypes
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
KINDS = {".css", ".js", ".svg"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str
    version: str


class StaticFiles:
    """A file is found by its exact name only, so no name can lead elsewhere."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(FOLDER).as_posix(): _load(path) for path in FOLDER.rglob("*") if path.suffix in KINDS
        }

    def url(self, name: str) -> str:
        """Where a page finds the file; the browser keeps it until its content changes."""
        return f"/static/{name}?v={self._files[name].version}"

    def response(self, name: str, version: str | None) -> Response | None:
        file = self._files.get(name)
        if file is None:
            return None
        is_known = version == file.version
        caching = "public, max-age=31536000, immutable" if is_known else "no-cache"
        return Response(file.content, headers={"Cache-Control": caching}, media_type=file.media_type)


def _load(path: Path) -> StaticFile:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return StaticFile(content, kind, sha256(content).hexdigest()[:12])
