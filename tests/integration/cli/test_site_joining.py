"""A site by one pasted line: added, joined, given a new token, revoked and taken back, as people do it."""

import asyncio
import json
import shlex
import ssl
import stat
from pathlib import Path

import pytest
import trustme

from fieldpost.central.operate.sites import Claimant
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.core.sites.node import SiteNode
from fieldpost.link import credentials
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.http.client import ApiClient
from fieldpost.link.messages import EpochAsk, Health, PairHealth
from fieldpost.site.config.folder import read_folder
from fieldpost.site.join import NEW_TOKEN_FILE, join_central
from support.commands import Cli, Ran
from support.front import ADMIN
from support.link_central import link_central


def pasted(ran: Ran) -> list[str]:
    """The arguments of the one line to be pasted."""
    assert ran.code == 0, ran.err
    [line] = [line for line in ran.out.splitlines() if line.startswith("    fieldpost ")]
    return shlex.split(line)[1:]


def token_of(folder: Path) -> str:
    return (folder / "token").read_text().strip()


async def owner(cli: Cli, token: str) -> str | None:
    found = await cli.front.operate.accounts.by_site_token(token)
    return found.site if found else None


@pytest.mark.threat(14)
async def test_one_pasted_line_sets_up_a_site(cli: Cli) -> None:
    added = await cli("sites", "add", "plant 9")
    assert "fp_site_" not in added.out, "no token is shown"
    joined = await cli(*pasted(added), role=None)
    assert (joined.code, joined.err) == (0, "")
    folder = cli.folder / "plant 9"
    assert (read_folder(folder).name, read_folder(folder).central_url) == ("plant 9", cli.url)
    assert await owner(cli, token_of(folder)) == "plant 9"
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert not (folder / NEW_TOKEN_FILE).exists()
    shown = (await cli("sites", "show", "plant 9", role="viewer")).out
    prefix = credentials.prefix_of(token_of(folder), "site")
    assert f"fp_site_{prefix}_…" in shown
    assert token_of(folder) not in shown
    sent = await cli("send", "--folder", "./plant 9", "--to", "ops", "--subject", "hello", "world", role=None)
    assert sent.code == 0, sent.err


async def test_a_new_token_for_a_site_that_never_joined_says_so(cli: Cli) -> None:
    await cli("sites", "add", "north")
    rotated = await cli("sites", "rotate-token", "north")
    assert "Site north has never joined, so it has no token to replace.\n" in rotated.out
    assert "--folder ./north" in rotated.out
    assert (await cli(*pasted(rotated), role=None)).code == 0
    again = await cli("sites", "rotate-token", "north", "--overlap-hours", "1")
    assert "The present tokens of site north are valid for 1 more hour.\n" in again.out


async def test_used_or_invalid_line_is_rejected_and_leaves_nothing(cli: Cli) -> None:
    line = pasted(await cli("sites", "add", "north"))
    assert (await cli(*line, role=None)).code == 0
    again = await cli(*line[:-1], "./elsewhere", role=None)
    assert (again.code, "join.denied" in again.err, again.err.count("\n")) == (6, True, 1)
    assert not (cli.folder / "elsewhere" / NEW_TOKEN_FILE).exists()
    before = token_of(cli.folder / "north")
    again = await cli(*line, role=None)
    assert (again.code, "belongs to the site north and keeps its token" in again.err) == (6, True)
    assert (token_of(cli.folder / "north"), await owner(cli, before)) == (before, "north")
    for text in ("nonsense", "fp_join_a_b@", "fp_join_a_b@ftp://x", f"fp_site_a_b@{cli.url}"):
        ran = await cli("site", "join", text, "--folder", "./elsewhere", role=None)
        assert (ran.code, ran.err.count("\n")) in ((3, 1), (8, 1)), text


async def test_unusable_address_is_rejected_before_any_change(cli: Cli) -> None:
    """The line shows once: a wrong one would cost another rotation."""
    refused = await cli("sites", "add", "north", "--central", "fieldpost.example.org")
    assert (refused.code, "central.url" in refused.err) == (8, True)
    assert (await cli("sites", "show", "north")).code == 4
    await cli("sites", "add", "north")
    again = await cli("sites", "add", "north")
    assert (again.code, "sites rotate-token" in again.err) == (5, True), "a code that was lost has a way out"
    before = (await cli("sites", "show", "north")).out
    assert (await cli("sites", "rotate-token", "north", "--central", "x")).code == 8
    assert (await cli("sites", "show", "north")).out == before


async def test_certificate_of_an_unknown_authority_is_reported_with_a_remedy(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    async with link_central(tls=context) as central:
        url = central.url.replace("http://127.0.0.1", "https://localhost")
        invitation = credentials.issue("join", bytes(40)).text + "@" + url
        for ask, advice in (
            (lambda: join_central(tmp_path, invitation, bytes(40)), "--ca-file FILE"),
            (lambda: ApiClient(Endpoint(url, "x")).get("sites"), "SSL_CERT_FILE="),
        ):
            with pytest.raises(Unavailable, match="is not trusted") as caught:
                await asyncio.to_thread(ask)
            assert advice in (caught.value.hint or "")


async def test_line_pasted_into_the_folder_of_another_site_is_rejected_and_stays_valid(cli: Cli) -> None:
    assert (await cli(*pasted(await cli("sites", "add", "north")), role=None)).code == 0
    line = pasted(await cli("sites", "add", "south"))
    before = token_of(cli.folder / "north")
    refused = await cli(*line[:-1], "./north", role=None)
    assert (refused.code, "join.other_site" in refused.err) == (5, True)
    assert token_of(cli.folder / "north") == before
    assert (await cli(*line, role=None)).code == 0


async def test_rotation_by_another_pasted_line_keeps_the_old_token_valid_meanwhile(cli: Cli) -> None:
    await cli(*pasted(await cli("sites", "add", "north")), role=None)
    old = token_of(cli.folder / "north")
    line = pasted(await cli("sites", "rotate-token", "north"))
    joined = await cli(*line[:-1], "./north", role=None)
    assert joined.out == "Site north in north has a new token.\n"
    new = token_of(cli.folder / "north")
    assert (new != old, await owner(cli, old), await owner(cli, new)) == (True, "north", "north")
    cli.front.clock.advance(24 * 3600)
    assert (await owner(cli, old), await owner(cli, new)) == (None, "north")
    line = pasted(await cli("sites", "rotate-token", "north", "--now"))
    assert await owner(cli, new) is None
    assert (await cli(*line[:-1], "./north", role=None)).code == 0
    assert await owner(cli, token_of(cli.folder / "north")) == "north"


async def test_revoked_site_is_shown_as_such_and_readmitted_by_a_new_line(cli: Cli) -> None:
    await cli(*pasted(await cli("sites", "add", "north")), role=None)
    assert "state:           no report yet\n" in (await cli("sites", "health", "north", role="viewer")).out
    revoked = await cli("sites", "revoke", "north")
    assert revoked.out == "Revoked site north. Reactivate it: fieldpost sites rotate-token north\n"
    assert await owner(cli, token_of(cli.folder / "north")) is None
    await cli("sites", "add", "south")
    listed = (await cli("sites", "list")).out.splitlines()
    [new] = [line for line in listed if line.startswith("south")]
    assert ("not enrolled yet" in new, "unknown" in new, "offline" in new) == (True, True, False)
    [line] = [line for line in listed if line.startswith("north")]
    assert line.split()[1] == "revoked"
    assert "state:           revoked\n" in (await cli("sites", "health", "north", role="viewer")).out
    assert json.loads((await cli("sites", "show", "north", "--json")).out)["revoked_at"] is not None
    status = await cli("status", "0198c8a0-0000-7000-8000-000000000001", "--folder", "./north", role=None)
    assert (status.code, "link.denied" in status.err) == (7, True), "the site hears that it is not welcome"
    line = pasted(await cli("sites", "rotate-token", "north"))
    assert (await cli(*line[:-1], "./north", role=None)).code == 0
    assert await owner(cli, token_of(cli.folder / "north")) == "north"
    assert json.loads((await cli("sites", "show", "north", "--json")).out)["revoked_at"] is None


async def test_a_token_may_still_be_printed_for_site_init(cli: Cli) -> None:
    added = await cli("sites", "add", "north", "--print-token")
    [token] = [word for word in added.out.split() if word.startswith("fp_site_")]
    made = await cli(*pasted(added), role=None, FIELDPOST_SITE_TOKEN=token)
    assert made.code == 0, made.err
    assert token_of(cli.folder / "north") == token
    rotated = await cli("sites", "rotate-token", "north", "--print-token", "--json")
    assert await owner(cli, json.loads(rotated.out)["token"]) == "north"


def test_interrupted_join_continues_with_the_same_token(tmp_path: Path) -> None:
    """Nobody answers: the token stays, so that central may take a second try for the first."""
    folder = tmp_path / "north"
    invitation = credentials.issue("join", bytes(40)).text + "@http://127.0.0.1:9"
    kept = set()
    for number in range(2):
        with pytest.raises(Exception, match="cannot reach"):
            join_central(folder, invitation, bytes([number]) * 40)
        kept.add((folder / NEW_TOKEN_FILE).read_text())
    assert len(kept) == 1
    assert not (folder / "site.toml").exists()


async def test_lost_answer_does_not_use_up_the_code(cli: Cli) -> None:
    invitation = pasted(await cli("sites", "add", "north"))[2]
    folder = cli.folder / "north"
    code, _, _ = invitation.partition("@")
    token = credentials.issue("site", bytes(range(40)))
    folder.mkdir()
    (folder / NEW_TOKEN_FILE).touch(0o600)
    (folder / NEW_TOKEN_FILE).write_text(token.text)
    await cli.front.operate.sites.join(code, Claimant(token.prefix, token.digest))
    with pytest.raises(Denied):
        await cli.front.operate.sites.join(code, Claimant("a" * 12, bytes(32)))
    assert (await cli("site", "join", invitation, "--folder", "./north", role=None)).code == 0
    assert token_of(folder) == token.text


async def test_version_is_printed_by_an_option_too(cli: Cli) -> None:
    told = [await cli("--version", role=None), await cli("version", role=None)]
    assert (told[0].code, told[0].out) == (0, told[1].out)


@pytest.mark.req("DEC-38")
async def test_second_node_joins_by_its_own_line_and_is_removed(cli: Cli) -> None:
    await cli(*pasted(await cli("sites", "add", "north")), role=None)
    added = await cli("sites", "add-node", "north")
    assert "Added node 1 to site north.\n" in added.out
    assert (await cli(*pasted(added)[:-1], "./second", role=None)).code == 0
    tokens = [token_of(cli.folder / folder) for folder in ("north", "second")]
    found = [await cli.front.operate.accounts.by_site_token(token) for token in tokens]
    assert [(one.site, one.node) for one in found if one] == [("north", 0), ("north", 1)]
    assert "nodes:           0, 1\n" in (await cli("sites", "show", "north")).out
    third = await cli("sites", "add-node", "north")
    assert (third.code, "site.two_nodes" in third.err) == (5, True)
    rotated = await cli("sites", "rotate-token", "north", "--node", "1")
    assert "The present tokens of node 1 of site north are valid for 24 more hours.\n" in rotated.out
    removed = await cli("sites", "remove-node", "north", "1")
    assert (removed.code, "Removed node 1 of site north." in removed.out) == (0, True)
    assert [await owner(cli, token) for token in tokens] == ["north", None]


@pytest.mark.req("DEC-38")
async def test_health_of_a_pair_lists_nodes_and_switches(cli: Cli) -> None:
    operate, ingest = cli.front.operate, cli.front.centre.ingest
    await operate.sites.add(ADMIN, "north")
    await operate.sites.add_node_token(ADMIN, "north")
    await ingest.epochs.answer(SiteNode("north", 1), EpochAsk(1, 1))
    pair = PairHealth(node=1, held=3, known=3, is_leading=True, lag_changes=7, lag_s=2.0)
    health = Health(sent_at="", version="1.2.3", backlog={}, pair=pair)
    await ingest.health.keep("north", health, 1)
    lines = [line.split() for line in (await cli("sites", "health", "north", role="viewer")).out.splitlines()]
    assert ["0", "standby", "offline", "never"] in lines
    assert ["1", "leader", "online", "2", "s,", "7", "1.2.3"] in [line[:7] for line in lines]
    assert ["1", "3", "granted"] in [line[-3:] for line in lines]
