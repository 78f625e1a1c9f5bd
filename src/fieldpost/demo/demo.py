"""`fieldpost demo`: central, two sites, their scripts and a mail catcher in one terminal.

Central, each site's agent and each site's script are processes of their own (`child.py`); the mail catcher and its
inbox live in this one. They start from the receiving end and stop from the sending end, so that nothing is left under
way: scripts, agents, central, catcher.
"""

import asyncio
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError, FieldpostError, Unavailable
from fieldpost.demo import check, welcome
from fieldpost.demo.catcher import Catcher, inbox_listening
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.children import DemoFailed
from fieldpost.demo.follow import Follower
from fieldpost.demo.inbox import Inbox
from fieldpost.demo.lock import DemoLock
from fieldpost.demo.mail_store import MailStore
from fieldpost.demo.old_data import offer_removal
from fieldpost.demo.processes import Processes
from fieldpost.demo.protocol import SentByScript
from fieldpost.demo.setup import furnish
from fieldpost.demo.terminal import Terminal

CONSOLE_PORT = 8025
INBOX_PORT = 8026
SMTP_PORT = 2525

PAUSE_S = 6.0
CHECK_PAUSE_S = 1.0
LOOK_S = 0.5
CHECK_S = 33.0
"""How long --check waits. Stopping takes at most 11 s, so that it ends within 45 s in any case."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    folder: Path | None = None
    """None: ./fieldpost-demo; for a check a temporary one."""
    store: str = ""
    """The central store's URL; empty for a SQLite file in the folder."""
    port: int | None = None
    """A port that is given must be free; None takes the usual one, or any that is free."""
    inbox_port: int | None = None
    smtp_port: int | None = None
    is_check: bool = False


def run_demo(options: DemoOptions) -> int:
    """Run until Ctrl-C, or until the check is done; the exit code."""
    if not options.store and not (options.is_check and options.folder is None):
        offer_removal(_folder_of(options))
    return asyncio.run(_run(options))


async def _run(options: DemoOptions) -> int:
    is_temporary = options.is_check and options.folder is None
    folder = Path(tempfile.mkdtemp(prefix="fieldpost-demo-")) if is_temporary else _folder_of(options)
    demo = Demo(options, folder, SystemClock())
    code = await demo.run()
    if is_temporary and code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _folder_of(options: DemoOptions) -> Path:
    return options.folder or Path("fieldpost-demo")


class Demo:
    """One run of the demo in one folder."""

    def __init__(self, options: DemoOptions, folder: Path, clock: Clock) -> None:
        self._options = options
        self._folder = folder
        self._clock = clock
        self._stopping = asyncio.Event()
        self._terminal = Terminal(self._stopping.set, is_brief=options.is_check)
        self._processes: Processes | None = None
        self._is_unwinding = False
        self._sent: list[SentByScript] = []
        self._findings: list[check.Finding] = []

    async def run(self) -> int:
        """The exit code: 0 when it was stopped, or the check has seen all it wants."""
        self._stop_on_signals()
        began = self._clock.monotonic()
        playing = asyncio.create_task(self._play())
        stopped = asyncio.create_task(self._stopping.wait())
        wait_s = CHECK_S if self._options.is_check else None
        await asyncio.wait({playing, stopped}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not self._is_unwinding:
            playing.cancel()
        await asyncio.wait({playing})
        failure = None if playing.cancelled() else playing.exception()
        if failure is not None:
            self._terminal.say(f"The demo cannot go on: {_reason(failure)}", "red")
            if self._folder.is_dir():
                self._terminal.say(f"Data and logs are in {self._folder}.")
            return 1
        if self._options.is_check:
            return self._verdict(self._clock.monotonic() - began)
        self._terminal.say(f"Stopped. The data stays in {self._folder}.")
        return 0

    async def _play(self) -> None:
        options, folder = self._options, self._folder
        self._make_folder()
        async with AsyncExitStack() as stack:
            lock = await stack.enter_async_context(DemoLock(folder, self._clock, self._terminal.say))
            self._terminal.say(f"Fieldpost demo, data in the folder {folder}")
            catcher = Catcher(stack.enter_context(MailStore(folder / "mails.jsonl")))
            smtp_port = await stack.enter_async_context(
                catcher.listening(self._wish(options.smtp_port, SMTP_PORT), may_move=options.smtp_port is None)
            )
            processes = await stack.enter_async_context(
                Processes(folder, lock.handle, self._clock, self._terminal, is_strict=options.is_check)
            )
            self._processes = processes
            stack.callback(self._unwind)
            central = await processes.start_central(
                options.store, self._wish(options.port, CONSOLE_PORT), may_move=options.port is None
            )
            inbox = Inbox(catcher.store, central.url, f"127.0.0.1:{smtp_port}")
            inbox_port = self._wish(options.inbox_port, INBOX_PORT)
            inbox_url = await stack.enter_async_context(
                inbox_listening(inbox, inbox_port, may_move=options.inbox_port is None)
            )
            api = CentralApi(central.url, _api_token(Path(central.token_file)))
            self._terminal.say("Setting up the channel, the lists and the sites …")
            await furnish(api, central.url, folder, smtp_port)
            if options.is_check:
                self._terminal.say("Letting the sites send …")
            self._welcome(central.url, inbox_url, smtp_port)
            follower = Follower(api, central.url, self._terminal, catcher.arrived_at)
            await follower.begin()

            def sent(report: SentByScript) -> None:
                if options.is_check:
                    self._sent.append(report)
                follower.sent(report)

            processes.start_sites(CHECK_PAUSE_S if options.is_check else PAUSE_S, sent)
            await self._watch(follower, api, inbox_url)

    async def _watch(self, follower: Follower, api: CentralApi, inbox_url: str) -> None:
        """Tell what happens; for ever, or until the check has seen all it wants."""
        while True:
            # Central may be away for a moment: somebody has killed it to see what happens.
            with suppress(Unavailable):
                await follower.look()
                if self._options.is_check:
                    self._findings = await check.look(api, inbox_url, self._sent)
                    if all(finding.is_so for finding in self._findings):
                        return
            await self._clock.sleep(LOOK_S)

    def _verdict(self, seconds: float) -> int:
        is_good = bool(self._findings) and all(finding.is_so for finding in self._findings)
        how = "All seen" if is_good else "Stopped before all was seen," if self._stopping.is_set() else "Not all seen"
        self._terminal.say(f"\n{how} after {seconds:.1f} s:", "green" if is_good else "red")
        for finding in self._findings:
            self._terminal.say(str(finding))
        if not is_good:
            self._terminal.tell_kept()
            self._terminal.say(f"Data and logs are in {self._folder}.")
        return 0 if is_good else 1

    def _welcome(self, console_url: str, inbox_url: str, smtp_port: int) -> None:
        if self._options.is_check:
            return
        for what, wished, got in (
            ("the console", self._wish(self._options.port, CONSOLE_PORT), urlsplit(console_url).port),
            ("the inbox", self._wish(self._options.inbox_port, INBOX_PORT), urlsplit(inbox_url).port),
            ("the mail catcher", self._wish(self._options.smtp_port, SMTP_PORT), smtp_port),
        ):
            if wished not in (0, got):
                self._terminal.say(f"Port {wished} is taken, so {what} is at port {got}.", "yellow")
        login = self._processes.login() if self._processes else None
        self._terminal.say(welcome.text(console_url, inbox_url, self._folder, login))

    def _wish(self, given: int | None, usual: int) -> int:
        """A check takes any port, so that it runs beside a demo and beside other checks."""
        return given if given is not None else 0 if self._options.is_check else usual

    def _make_folder(self) -> None:
        try:
            (self._folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("demo.folder", f"{self._folder} cannot be made: {error.strerror or error}") from None

    def _unwind(self) -> None:
        self._is_unwinding = True
        self._terminal.say("Stopping: scripts, agents, central, mail catcher …")

    def _stop_on_signals(self) -> None:
        """Ctrl-C stops in order; once more, at once."""

        def stop() -> None:
            if self._stopping.is_set() and self._processes is not None:
                self._processes.kill()
            self._stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop)


def _api_token(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "demo.no_token",
            f"the store has accounts already, but no API token of theirs is in {file}",
            hint="give --folder the folder of the demo that made them, or --store an empty database",
        ) from None


def _reason(error: BaseException) -> str:
    """What a person can use of it: groups come from the task group that watches the processes."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, DemoFailed | FieldpostError | OSError):
        raise error
    return str(error)
