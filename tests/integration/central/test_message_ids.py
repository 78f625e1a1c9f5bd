"""The domain of Message-IDs is chosen at the first start of an installation and stays."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost.central.adapters.email.options import EmailOptions
from fieldpost.core.errors import ConfigError
from fieldpost.run.node import keep_message_id_domain
from fieldpost.testing import MailServer
from support.centre import Centre
from support.running_central import MAIN, RunningCentral, call

SET = "FIELDPOST_EMAIL__MESSAGE_ID_DOMAIN"


async def test_first_start_chooses_the_domain_and_later_starts_keep_it(mailing: Centre) -> None:
    chosen = await keep_message_id_domain(mailing.store, EmailOptions())
    assert "." in chosen
    assert await keep_message_id_domain(mailing.store, EmailOptions()) == chosen
    assert await keep_message_id_domain(mailing.store, EmailOptions(message_id_domain=chosen.upper())) == chosen
    with pytest.raises(ConfigError, match=r"has used .* since its first start") as caught:
        await keep_message_id_domain(mailing.store, EmailOptions(message_id_domain="other.example"))
    assert (caught.value.code, caught.value.field) == ("settings.kept", "email.message_id_domain")
    assert await keep_message_id_domain(mailing.store, EmailOptions()) == chosen, "a refused start changes nothing"


async def test_nodes_that_start_together_choose_one_domain(mailing: Centre) -> None:
    names = [f"node{number}.example" for number in range(8)]
    results = await asyncio.gather(
        *(keep_message_id_domain(mailing.store, EmailOptions(message_id_domain=name)) for name in names),
        return_exceptions=True,
    )
    assert sum(result in names for result in results) == 1
    assert sum(isinstance(result, ConfigError) for result in results) == 7


async def test_a_running_central_sends_with_the_domain_of_its_first_start(sqlite_url: str, tmp_path: Path) -> None:
    node = RunningCentral(sqlite_url, tmp_path / "data")
    node._environment[SET] = "alerts.example.org"
    async with MailServer() as server:
        for sender in ("alerts@plant.example", "alerts@new-name.example"):
            async with node:
                token = (node.folder / "api-token").read_text().strip()
                name = sender.partition("@")[2].partition(".")[0]
                settings = {"host": server.host, "port": server.port, "tls": "none", "from_address": sender}
                await call(node, token, "POST", "channels", {"name": name, "type": "email", "settings": settings})
                await call(node, token, "POST", f"channels/{name}/test", {"to": "ops@plant.example"})
            node._environment.pop(SET, None)
        domains = [(mail.message_id or "").rpartition("@")[2] for mail in server.mails]
        assert domains == ["alerts.example.org>"] * 2
    command = [sys.executable, "-P", "-c", MAIN, *node._arguments]
    environment = node._environment | {SET: "other.example"}
    refused = await asyncio.to_thread(
        subprocess.run, command, env=environment, cwd=node.folder, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode != 0
    assert "this installation has used alerts.example.org since its first start" in refused.stderr
    assert "Traceback" not in refused.stderr
