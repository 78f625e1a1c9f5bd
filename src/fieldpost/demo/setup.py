"""Creates the demo's channels, lists and sites through central's API, at every start; existing ones are kept."""

import os
from collections.abc import Mapping
from pathlib import Path

from fieldpost.core.errors import ConfigError, Denied
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.chats import ChatKind
from fieldpost.demo.child import keep_secret
from fieldpost.demo.providers import ChatSetup
from fieldpost.demo.scenario import (
    ALARM,
    ALARM_MEMBERS,
    CHANNEL,
    CHAT_LISTS,
    FROM_ADDRESS,
    MAILBOXES,
    RETRY_DELAY_S,
    SITES,
)
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
        ensure_site(folder / role.name, role.name, central_url, token)


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


async def set_up_chats(api: CentralApi, providers: Mapping[ChatKind, ChatSetup]) -> None:
    """Create the channels and lists of the providers, and the list of lists. Existing ones get this run's addresses.
    Raises FieldpostError."""
    channels = {found["name"]: found for found in (await api.get("channels"))["channels"]}
    lists = {found["name"]: found for found in (await api.get("lists"))["lists"]}
    for kind, setup in providers.items():
        chat = CHAT_LISTS[kind]
        settings = {"settings": setup.settings, "secrets": setup.channel_secrets}
        if chat.channel in channels:
            if setup.settings:
                version = channels[chat.channel]["version"]
                await api.patch("channels", chat.channel, body=settings | {"version": version})
        else:
            more = {"name": chat.channel, "type": kind.value, "retry_delay_s": RETRY_DELAY_S}
            await api.post("channels", body=settings | more)
        secrets = {"secrets": {chat.target: setup.target_secret}} if setup.target_secret else {}
        if chat.name not in lists:
            body: JsonObject = {"name": chat.name, "type": kind.value, "channel": chat.channel}
            await api.post("lists", body=body | {"targets": [chat.target]} | secrets)
        elif secrets:
            await api.patch("lists", chat.name, body=secrets | {"version": lists[chat.name]["version"]})
    if ALARM not in lists:
        await api.post("lists", body={"name": ALARM, "type": "lists", "targets": list(ALARM_MEMBERS)})


def ensure_site(folder: Path, name: str, central_url: str, token: str | None) -> None:
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
