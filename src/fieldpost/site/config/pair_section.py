"""Writes the section `[pair]` of `site.toml`, for the commands that make and end a pair."""

import os
from pathlib import Path

from fieldpost.core.errors import ConfigError
from fieldpost.site.config.folder import SETTINGS_FILE, Folder, read_folder, toml_text


def write_pair_section(folder: Folder, listen: str, peer: str) -> Folder:
    """Set both addresses; all other lines stay as they are."""
    if (folder.pair.listen, folder.pair.peer) == (listen, peer):
        return folder
    lines = _lines(folder.path)
    own = [f"listen = {toml_text(listen)}", f"peer = {toml_text(peer)}"]
    inside = False
    kept: list[str] = []
    for line in lines:
        if line.lstrip().startswith("["):
            inside = line.strip() == "[pair]"
            kept.append(line)
            kept += own if inside else []
        elif not (inside and line.partition("=")[0].strip() in ("listen", "peer")):
            kept.append(line)
    if not any(line.strip() == "[pair]" for line in kept):
        kept += ["", "[pair]", *own]
    return _replace(folder.path, kept)


def remove_pair_section(folder: Folder) -> Folder:
    """Remove the section with all its keys."""
    kept: list[str] = []
    inside = False
    for line in _lines(folder.path):
        if line.lstrip().startswith("["):
            inside = line.strip() == "[pair]"
        if not inside:
            kept.append(line)
    return _replace(folder.path, kept)


def _lines(path: Path) -> list[str]:
    return (path / SETTINGS_FILE).read_text(encoding="utf-8").splitlines()


def _replace(path: Path, lines: list[str]) -> Folder:
    file, fresh = path / SETTINGS_FILE, path / f"{SETTINGS_FILE}.new"
    try:
        fresh.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
        fresh.chmod(file.stat().st_mode & 0o777)
        with fresh.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(fresh, file)
    except OSError as error:
        raise ConfigError(
            "site.settings",
            f"{file} cannot be written: {error.strerror or error}",
            hint="add listen and peer under [pair] yourself",
        ) from None
    return read_folder(path)
