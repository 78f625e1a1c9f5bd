"""Files that hold a secret: durable before they are relied on, and readable by their owner only."""

import contextlib
import os
from pathlib import Path


def write_secret_file(file: Path, text: str) -> None:
    """Replace the file by a rename and sync it, so that a crash or power cut leaves the old text or the new one.

    Returns when the text is on disk under this name, in a folder that is on disk too. Raises OSError.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.new")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, file)
        _sync_folder(file.parent)
        _sync_folder(file.parent.absolute().parent)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows cannot sync a folder.
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # The folder above ours belongs to somebody else, so it existed before.
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
