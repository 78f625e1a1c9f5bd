"""Creates the demo's channel, lists and sites through central's API, at every start; existing ones are kept."""

import os
from pathlib import Path

from fieldpost.core.errors import ConfigError, Denied
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.child import keep_secret
from fieldpost.demo.scenario import CHANNEL, FROM_ADDRESS, MAILBOXES, RETRY_DELAY_S, SITES
from fieldpost.link.http.client import JsonObject
from fieldpost.site.config.folder import SETTINGS_FILE, TOKEN_FILE, read_folder
from fieldpost.site.site import Site


async def set_up(api: CentralApi, central_url: str, folder: Path, smtp_port: int) -> None:
    """Create missing channel, lists and sites at central, and the folder of each site. Raises FieldpostError."""
    try:
        sites = {site["name"] for site in (await api.get("sites"))["sites"]}
    except Denied as error:
        raise ConfigError(
            "demo.other_store",
            f"central rejects the API token in {folder}: the store belongs to another folder",
            hint="give --folder that folder, or --store an empty database",
        ) from error
    await _channel(api, smtp_port)
    await _lists(api)
    for role in SITES:
        token = None if role.name in sites else (await api.post("sites", body={"name": role.name}))["token"]
        _site(folder / role.name, role.name, central_url, token)


async def _channel(api: CentralApi, smtp_port: int) -> None:
    settings: JsonObject = {
        "host": "127.0.0.1",
        "port": smtp_port,
        "tls": "none",
        "from_address": FROM_ADDRESS,
    }
    channels = (await api.get("channels"))["channels"]
    mine = next((channel for channel in channels if channel["name"] == CHANNEL), None)
    if mine is None:
        is_default = not any(channel["is_default"] for channel in channels if channel["type"] == "email")
        body = {"name": CHANNEL, "type": "email", "settings": settings, "is_default": is_default}
        body["retry_delay_s"] = RETRY_DELAY_S
        await api.post("channels", body=body)
    elif mine["settings"]["port"] != smtp_port:
        body = {"settings": {"port": smtp_port}, "version": mine["version"]}
        await api.patch("channels", CHANNEL, body=body)


async def _lists(api: CentralApi) -> None:
    known = {found["name"] for found in (await api.get("lists"))["lists"]}
    for name, address in MAILBOXES.items():
        if name not in known:
            await api.post("lists", body={"name": name, "targets": [address], "channel": CHANNEL})


def _site(folder: Path, name: str, central_url: str, token: str | None) -> None:
    """Create or update the site's folder: central may have another port or another store than last time."""
    if not (folder / SETTINGS_FILE).exists():
        if token is None:
            raise ConfigError(
                "demo.lost_token",
                f"central knows the site {name}, but its token is not in {folder}",
                hint="start again with another --folder, and an empty database if you gave --store",
            )
        (folder / TOKEN_FILE).unlink(missing_ok=True)
        Site.create(folder, name, central_url, token).close()
        return
    if token is not None:
        keep_secret(folder / TOKEN_FILE, token + "\n")
    former_url = read_folder(folder).central_url
    if former_url != central_url:
        _replace_text(folder / SETTINGS_FILE, f'"{former_url}"', f'"{central_url}"')


def _replace_text(file: Path, old: str, new: str) -> None:
    changed = file.with_name(file.name + ".new")
    changed.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    os.replace(changed, file)
