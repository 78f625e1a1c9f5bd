"""`fieldpost users` and `tokens` as processes; the first start, and HTTPS by `--tls-cert`."""

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import trustme

from support.commands import FIELDPOST, Cli


async def test_users_are_added_listed_changed_and_removed(cli: Cli) -> None:
    added = await cli("users", "add", "anna", "--role", "viewer")
    link = added.out.split()[-1]
    assert link.startswith(f"{cli.url}/set-password?link=fp_link_")
    async with aiohttp.ClientSession() as session, session.get(link) as page:
        assert page.status == 200
    assert (await cli("users", "change", "anna", "--role", "operator")).out == "Changed user anna to role operator.\n"
    assert (await cli("users", "disable", "anna")).code == 0
    assert "disabled" in (await cli("users", "list")).out
    assert (await cli("users", "enable", "anna")).code == 0
    assert "no password yet" in (await cli("users", "show", "anna")).out
    again = await cli("users", "reset-password", "anna", "--json")
    assert json.loads(again.out)["link"] != link.removeprefix(cli.url)
    assert (await cli("users", "log-out", "viewer")).out == "Ended 0 sessions of viewer.\n"
    removed = await cli("users", "remove", "anna", "--json")
    assert json.loads(removed.out) == {"name": "anna", "is_removed": True}
    assert (await cli("users", "show", "anna")).code == 4


async def test_tokens_with_an_expiry_are_added_used_and_revoked(cli: Cli) -> None:
    made = await cli("tokens", "add", "bridge", "--role", "viewer", "--user", "operator", "-o", "token", "--json")
    answer = json.loads(made.out)
    assert answer["token"] == "***"
    assert (cli.folder / "token").stat().st_mode & 0o777 == 0o600
    token = (cli.folder / "token").read_text().strip()
    used = await cli("lists", "list", "--token-file", "token", role=None)
    assert used.code == 0
    refused = await cli("lists", "add", "l", "--target", "a@example.org", "--token-file", "token", role=None)
    assert (refused.code, "operator is viewer" in refused.err) == (6, True)
    assert "bridge" in (await cli("tokens", "list")).out
    assert token not in (await cli("tokens", "list", "--json")).out
    revoked = await cli("tokens", "revoke", answer["token_id"], "--json")
    assert json.loads(revoked.out) == {"token_id": answer["token_id"], "is_revoked": True}
    assert (await cli("lists", "list", "--token-file", "token", role=None)).code == 6


async def test_invalid_values_are_rejected_with_the_documented_exit_code(cli: Cli) -> None:
    cases = {
        ("users", "add", "Anna", "--role", "viewer"): (3, "user.name"),
        ("users", "add", "anna", "--role", "king"): (3, "role.unknown"),
        ("users", "change", "admin", "--role", "viewer"): (5, "user.last_admin"),
        ("tokens", "add", "x", "--role", "viewer", "--expires-in", "soon"): (3, "cli.duration"),
        ("tokens", "revoke", "nonsense"): (4, "token.unknown"),
    }
    for arguments, (code, text) in cases.items():
        ran = await cli(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
        assert text in ran.err


async def test_the_first_start_prints_a_link_and_serves_https_with_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    process = await asyncio.create_subprocess_exec(
        *(FIELDPOST, "central", "--port", "0", "--tls-cert", "both.pem"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            told = [(await process.stdout.readline()).decode() for _ in range(4)]
        link = told[2].strip()
        assert link.startswith("https://127.0.0.1:")
        kept = tmp_path / "fieldpost-data/first-login"
        assert kept.read_text().strip() == link
        assert kept.stat().st_mode & 0o777 == 0o600
        async with aiohttp.ClientSession() as session, session.get(link, ssl=trusting) as page:
            assert page.status == 200
            assert "Choose a password" in await page.text()
            assert "__Host-fieldpost-visitor" in page.headers["set-cookie"]
    finally:
        process.terminate()
        await process.wait()


async def test_zgw_clients_are_added_rotated_and_revoked(cli: Cli) -> None:
    added = await cli("zgw-clients", "add", "open-zaak", "--scope", "publiceren", "--kanaal", "zaken", "--json")
    secret = json.loads(added.out)["secret"]
    rotated = await cli("zgw-clients", "rotate", "open-zaak")
    assert "Its secret is shown only once:" in rotated.out
    listed = await cli("zgw-clients", "list")
    assert [text in listed.out for text in ("open-zaak", "publiceren", "zaken", secret)] == [True, True, True, False]
    given = await cli("zgw-clients", "add", "oud", "--scope", "consumeren", "--secret", said="kort\n")
    assert "Warning: the secret has 4 bytes" in given.out
    assert (await cli("zgw-clients", "revoke", "open-zaak")).out == "Revoked ZGW client open-zaak.\n"
    assert "revoked" in (await cli("zgw-clients", "list")).out
    assert (await cli("zgw-clients", "revoke", "nobody")).code == 4
