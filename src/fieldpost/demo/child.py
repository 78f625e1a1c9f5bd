"""One process of the demo: `python -m fieldpost.demo.child`. The first line of stdin says which part it plays.

Stdin stays open while the demo runs. When it closes, even by kill -9 of the demo, the process stops itself: in order by
SIGTERM, and by force if that takes too long. No process outlives the demo.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError, FieldpostError
from fieldpost.core.times import to_text
from fieldpost.demo.protocol import AgentPart, CentralPart, DemoPart, Failed, Report, ScriptPart, SentByScript, Serves
from fieldpost.demo.scenario import BREAK_S, FAILURES_MAX, SITES
from fieldpost.run.process import run_process, stop_on_signals

ORPHAN_GRACE_S = 5.0
AGENT_INTERVAL_S = 2.0


def main() -> None:
    """Play the part until SIGTERM."""
    part = msgspec.json.decode(sys.stdin.buffer.readline(), type=DemoPart)
    threading.Thread(target=_end_with_the_demo, name="tether", daemon=True).start()
    try:
        run_process(_play(part))
    except FieldpostError as error:
        _report(Failed(str(error)))
        sys.exit(1)


def _end_with_the_demo() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(ORPHAN_GRACE_S)
    os._exit(1)


async def _play(part: DemoPart) -> None:
    from fieldpost.run import logs

    logs.configure("info")
    match part:
        case CentralPart():
            await _central(part)
        case AgentPart():
            from fieldpost.run.site import run_site
            from fieldpost.site.config.options import ForwardOptions

            await run_site(Path(part.folder), ForwardOptions(interval_s=AGENT_INTERVAL_S))
        case ScriptPart():
            await _script(part, SystemClock())


async def _central(part: CentralPart) -> None:
    from fieldpost.central.access.passwords import SYLLABLES, readable_password
    from fieldpost.central.adapters.webhook.options import WebhookOptions
    from fieldpost.central.dispatch.options import DispatchOptions
    from fieldpost.outbound.options import OutboundOptions
    from fieldpost.run.central import Started, run_central
    from fieldpost.run.settings import CentralOptions, CentralSettings

    # OpenSSL reads it when the first outbound connection is made: the demo's providers, and nobody else, are trusted.
    os.environ["SSL_CERT_FILE"] = part.trust_file
    # The demo prints a login that works immediately, so it chooses the password.
    password = readable_password(secrets.token_bytes(SYLLABLES))

    def announce(started: Started) -> None:
        if (account := started.first_account) is not None:
            keep_secret(Path(part.login_file), json.dumps({"name": account.name, "password": password}) + "\n")
        _report(Serves(started.url, str(started.token_file)))

    options = CentralOptions(folder=part.folder, store=part.store, port=part.port)
    settings = CentralSettings(
        central=options,
        dispatch=DispatchOptions(grace_s=5.0),
        outbound=OutboundOptions(allow="127.0.0.1"),
        webhooks=WebhookOptions(allow_plain=True, failures_max=FAILURES_MAX, break_s=BREAK_S, lapse_s=4 * BREAK_S),
    )
    try:
        await run_central(settings, announce, first_password=password)
    except ConfigError as error:
        if error.code != "central.listen" or not part.may_move:
            raise
        moved = replace(settings, central=replace(options, port=0))
        await run_central(moved, announce, first_password=password)


async def _script(part: ScriptPart, clock: Clock) -> None:
    """Send notifications like a script at a site, only more often."""
    from fieldpost import Site

    role = next(site for site in SITES if site.name == part.site)
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    with Site.open(part.folder) as site:
        wait_s = part.first_s
        for words in role.spoken():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await stopping.wait()
            if stopping.is_set():
                return
            sent_at = clock.now()
            recipients = site.notify.to(words.list_name)
            sent_id = recipients.send(
                words.subject, words.body, instance=words.instance, script=role.script, severity=words.severity
            )
            _report(SentByScript(sent_id, part.site, words.list_name, words.subject, to_text(sent_at)))
            wait_s = part.pause_s


def keep_secret(path: Path, text: str) -> None:
    """Replace a file atomically; only its owner can read it."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(new, path)


def _report(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
