"""`fieldpost lists`, `channels`, `secrets`: change, import, export, secrets by pipe and file, a test."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fieldpost.central.secrets.keyring import parse_keys
from fieldpost.testing import MailServer, ManualClock
from support import commands
from support.front import open_front, served

MAIL = ("--set", "host=127.0.0.1", "--set", "tls=none", "--set", "from_address=ops@plant.example")
LOGIN = ("--set", "auth=basic", "--set", "username=ops@plant.example")


class Cli(commands.Cli):
    async def __call__(self, *arguments: str, said: str = "", role: str = "admin") -> tuple[int, str]:
        """The exit code, and all that it said."""
        ran = await super().__call__(*arguments, said=said, role=role)
        return ran.code, ran.out + ran.err


@pytest.fixture
async def cli(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Cli]:
    async with open_front(sqlite_url, ManualClock()) as front, served(front.app) as url:
        yield Cli(front, url, tmp_path)


async def test_a_list_is_changed_exported_and_imported(cli: Cli) -> None:
    await cli("lists", "add", "ops", "--target", "a@example.org", "--target", "b@example.org")
    code, out = await cli(
        *("lists", "change", "ops", "--add-target", "c@example.org", "--remove-target", "A@example.org"),
        *("--retry", "fixed:5s:3", "--park-uncertain", "--allow-site", "plant-7"),
    )
    assert (code, out) == (0, "Changed list ops; it has 2 targets.\n")
    found = json.loads((await cli("lists", "show", "ops", "--json"))[1])
    assert (found["targets"], found["retry"], found["allowed_sites"], found["park_uncertain"]) == (
        ["b@example.org", "c@example.org"],
        "fixed:5s:3",
        ["plant-7"],
        True,
    )
    for kind in ("csv", "json"):
        assert await cli("lists", "export", "--format", kind, "-o", f"lists.{kind}") == (0, "")
    await cli("lists", "change", "ops", "--remove-target", "b@example.org", "--inherit-retry", "--allow-all-sites")
    code, out = await cli("lists", "import", "lists.csv", "--dry-run")
    assert (code, out.splitlines()) == (
        0,
        [
            "changed: ops",
            "  + b@example.org",
            "  ~ retry",
            "  ~ allowed_sites",
            "Would change 1 list; 0 unchanged.",
        ],
    )
    assert (await cli("lists", "import", "lists.json"))[1].splitlines()[-1] == "Changed 1 list; 0 unchanged."
    after = json.loads((await cli("lists", "show", "ops", "--json"))[1])
    assert after | {"version": 0} == found | {"version": 0}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("lists", "change", "ops"), 3, "nothing to change"),
        (("lists", "change", "ops", "--remove-target", "x@example.org"), 3, "is not a target of the list"),
        (("lists", "change", "ops", "--retry", "fixed:5s:3", "--inherit-retry"), 3, "both set and reset"),
        (("lists", "change", "nobody", "--add-target", "x@example.org"), 4, "does not exist"),
        (("lists", "import", "nothing.csv"), 3, "cannot read"),
        (("lists", "import", "lists.xls"), 3, "must end in .csv or .json"),
        (("lists", "import", "bad.csv"), 3, "line 2"),
        (("lists", "export", "--format", "xml"), 3, "csv or json"),
        (("channels", "change", "mail"), 3, "nothing to change"),
        (("channels", "add", "mail", *MAIL, "--set", "password=kanarie"), 3, "--secret password"),
        (("channels", "add", "mail", *MAIL, "--secret", "password=kanarie"), 3, "takes only a name"),
        (("channels", "add", "mail", *MAIL, "--secret", "password"), 3, "is empty"),
        (("channels", "add", "mail", *MAIL, "--secret-file", "password=nothing"), 3, "cannot read"),
    ],
)
async def test_wrong_command_reports_the_error(cli: Cli, arguments: tuple[str, ...], code: int, says: str) -> None:
    (cli.folder / "bad.csv").write_text("list,target\nops,nonsense\n")
    await cli("lists", "add", "ops", "--target", "a@example.org")
    found, out = await cli(*arguments)
    assert found == code, out
    assert says in out
    assert "kanarie" not in out
    assert "Traceback" not in out


@pytest.mark.bad_input(28)
async def test_secrets_are_read_from_pipe_or_file_and_shown_as_set(cli: Cli) -> None:
    async with MailServer(auth=lambda given: given.secret == "by file") as server:
        mail = (*MAIL, *LOGIN, "--set", f"port={server.port}")
        assert (await cli("channels", "add", "mail", *mail, "--secret", "password", said="by pipe\n"))[0] == 0
        code, out = await cli("channels", "test", "mail", "--to", "ann@example.org")
        assert (code, server.mail_count) == (1, 0)
        assert "535" in out
        (cli.folder / "password").write_text("by file\n")
        assert (await cli("channels", "change", "mail", "--secret-file", "password=password"))[0] == 0
        code, out = await cli("channels", "test", "mail", "--to", "ann@example.org")
        assert (code, server.mail_count) == (0, 1), out
        assert "> MAIL FROM:<ops@plant.example>" in out
        assert out.splitlines()[-1].split() == ["outcome:", "delivered"]
        assert "by file" not in out
        assert base64_of("by file") not in out
    code, out = await cli("channels", "show", "mail")
    assert "(set)" in out
    assert "by file" not in out
    code, out = await cli("channels", "change", "mail", "--set", "from_address=other@plant.example")
    assert "Warning: from_address is other@plant.example" in out
    assert (await cli("channels", "change", "mail", "--max-retries", "4", "--retry-delay-s", "2.5"))[0] == 0
    shown = dict(
        line.split(maxsplit=1) for line in (await cli("channels", "show", "mail"))[1].splitlines() if " " in line
    )
    assert (shown["max_retries:"], shown["retry_delay_s:"]) == ("4", "2.5")
    code, out = await cli("channels", "change", "mail", "--max-retries", "0")
    assert (code, "max_retries must be a whole number between 1 and 1000, got 0" in out) == (3, True), out
    assert (await cli("channels", "test", "mail", "--to", "a@example.org", role="operator"))[0] == 6


async def test_keys_are_generated_shown_and_rotated(cli: Cli) -> None:
    key_file = cli.folder / "keys" / "secret.key"
    for count in (1, 2):
        assert (await cli("secrets", "new-key", str(key_file)))[0] == 0
        assert len(parse_keys(key_file.read_text(), "file")) == count
    printed = (await cli("secrets", "new-key"))[1]
    assert len(parse_keys(printed, "output")) == 1
    await cli("channels", "add", "mail", *MAIL, *LOGIN, "--secret", "password", said="x\n")
    (key_id,) = cli.front.centre.keyring.key_ids
    out = (await cli("secrets", "show"))[1]
    assert out.split() == ["encrypting", "key:", key_id, "encrypted", "with", f"{key_id}:", "1", "secrets"]
    assert await cli("secrets", "rotate") == (0, f"Encrypted 0 secrets with key {key_id}.\n")


def base64_of(text: str) -> str:
    return base64.b64encode(b"\0ops@plant.example\0" + text.encode()).decode()
