"""A node started without the key of its secrets, or with another: it starts, holds what needs the key, and works on."""

from pathlib import Path

import pytest

from fieldpost.central.secrets.keyring import key_text
from fieldpost.testing import MailServer
from support.running_central import RunningCentral, call, until
from support.sender import Sender


@pytest.mark.fault(67)
@pytest.mark.parametrize(
    ("store", "trouble"), [("sqlite_url", "missing"), ("sqlite_url", "garbage"), ("pg_url", "wrong")]
)
async def test_a_node_with_the_wrong_key_holds_its_channel_and_the_rest_works(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, trouble: str
) -> None:
    store_url = request.getfixturevalue(store)
    folder = tmp_path / "central"
    key_file = folder / "secret.key"
    async with MailServer(auth=lambda given: given.secret == "right") as mail:
        async with RunningCentral(store_url, folder) as node:
            token = (folder / "api-token").read_text().strip()
            site = await furnish(node, token, mail.port)
            assert await node.stop() == 0
        right = key_file.read_text()
        key_file.unlink()
        if trouble != "missing":
            key_file.write_text({"wrong": key_text(b"w" * 32), "garbage": "nonsense"}[trouble])
        async with RunningCentral(store_url, folder) as node, Sender(site, node.url) as sender:
            (held,) = await sender.send(1, "locked")
            await sender.send(1, "open")
            await mail.received(1, to="open@example.org")
            found = await until(lambda: held_reason(node, token, held), 20, "the row to be held")
            assert "the password of channel 'login' cannot be read" in found
            health = await call(node, token, "GET", "health")
            assert health["status"] == "error"
            unreadable = [one["text"] for one in health["issues"] if one["code"] == "secrets.unreadable"]
            assert any("password of channel 'login'" in text for text in unreadable)
            assert (await call(node, token, "GET", f"notifications/{held}"))["status"] == "pending"
            assert await node.stop() == 0
        key_file.write_text(right)
        key_file.chmod(0o600)
        async with RunningCentral(store_url, folder) as node:
            health = await call(node, token, "GET", "health")
            assert "secrets.unreadable" not in [one["code"] for one in health["issues"]]
            await call(node, token, "POST", "breakers/channel:login/reset", {})
            await mail.received(1, to="locked@example.org", timeout_s=30)


async def furnish(node: RunningCentral, token: str, port: int) -> str:
    """A channel with a login and one without, a list on each; a site's token."""
    plain = {"host": "127.0.0.1", "port": port, "tls": "none", "from_address": "ops@example.org"}
    login = plain | {"auth": "basic", "username": "ops"}
    channels = [
        {"name": "login", "type": "email", "settings": login, "secrets": {"password": "right"}},
        {"name": "plain", "type": "email", "settings": plain},
    ]
    for channel in channels:
        await call(node, token, "POST", "channels", channel)
    for name, channel_name in (("locked", "login"), ("open", "plain")):
        body = {"name": name, "targets": [f"{name}@example.org"], "channel": channel_name}
        await call(node, token, "POST", "lists", body)
    return str((await call(node, token, "POST", "sites", {"name": "plant-7"}))["token"])


async def held_reason(node: RunningCentral, token: str, notification_id: str) -> str | None:
    found = await call(node, token, "GET", f"notifications/{notification_id}")
    return str(found["held_reason"]) if found.get("held_by") else None
