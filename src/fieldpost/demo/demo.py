"""`fieldpost demo`: central, two sites, their scripts, a catcher of mails and chats and receivers of webhooks in one
terminal.

Central, each site's agent and each site's script run as separate processes (`child.py`); the catcher, its inbox, the
providers of chats and SMS, the receivers and the application that publishes events run in this one. The receiving end
starts first and stops last, so that nothing stays in transit: scripts, agents, central, receivers, providers, catcher.
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
from fieldpost.demo.catcher import Catcher, listen
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.children import DemoFailed
from fieldpost.demo.follow import Follower
from fieldpost.demo.inbox import Inbox
from fieldpost.demo.lock import DemoLock
from fieldpost.demo.mail_store import MailStore
from fieldpost.demo.old_data import offer_removal
from fieldpost.demo.pair import set_up_pair
from fieldpost.demo.processes import Processes
from fieldpost.demo.protocol import SentByScript
from fieldpost.demo.providers import Providers
from fieldpost.demo.scenario import FAILING_S, TELEGRAM_PAUSE_S
from fieldpost.demo.setup import set_up, set_up_chats
from fieldpost.demo.terminal import Terminal
from fieldpost.demo.webhooks import Receivers, application_token, publish, set_up_webhooks
from fieldpost.run.data_folder import check_access, make_folder

CONSOLE_PORT = 8025
INBOX_PORT = 8026
SMTP_PORT = 2525

PAUSE_S = 6.0
CHECK_PAUSE_S = 1.0
CHECK_FAILING_S = 3.0
CHECK_CHAT_PAUSE_S = 2
POLL_S = 0.5
CHECK_S = 33.0
"""Time limit of --check. Stopping takes at most 11 s, so that the command ends within 45 s."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    folder: Path | None = None
    """None: ./fieldpost-demo, or a temporary folder for a check."""
    store: str = ""
    """URL of the central store; empty for a SQLite file in the folder."""
    port: int | None = None
    """A given port must be free; None takes the usual port or any free one."""
    inbox_port: int | None = None
    smtp_port: int | None = None
    is_check: bool = False
    has_pair: bool = False
    """Whether the harbour is a pair of two nodes."""


def run_demo(options: DemoOptions) -> int:
    """Run until Ctrl-C, or until the check is done; returns the exit code."""
    folder = _folder_of(options)
    check_access("demo.folder", folder, [folder, *folder.rglob("*")])
    if not options.store and not (options.is_check and options.folder is None):
        offer_removal(folder)
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
        """Run; the exit code is 0 after a stop or a successful check."""
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
            self._terminal.say(f"The demo failed: {_reason(failure)}", "red")
            if self._folder.is_dir():
                self._terminal.say(f"Data and logs are in {self._folder}.")
            return 1
        if self._options.is_check:
            return self._verdict(self._clock.monotonic() - began)
        self._terminal.say(f"Stopped. The data stays in {self._folder}.")
        return 0

    async def _play(self) -> None:
        options, folder = self._options, self._folder
        for one in (folder, folder / "logs"):
            make_folder("demo.folder", one)
        async with AsyncExitStack() as stack:
            lock = await stack.enter_async_context(DemoLock(folder, self._clock, self._terminal.say))
            self._terminal.say(f"Fieldpost demo, data in the folder {folder}")
            catcher = Catcher(stack.enter_context(MailStore(folder / "mails.jsonl")))
            wished = self._wish(options.smtp_port, SMTP_PORT)
            smtp_port = await listen(stack, catcher.listening, wished, may_move=options.smtp_port is None)
            chat_pause_s = CHECK_CHAT_PAUSE_S if options.is_check else TELEGRAM_PAUSE_S
            providers = Providers(folder, self._clock, chat_pause_s, catcher.take_chat)
            chats = await stack.enter_async_context(providers.listening())
            receivers = Receivers(self._clock, CHECK_FAILING_S if options.is_check else FAILING_S)
            receiver_url = await stack.enter_async_context(receivers.listening())
            processes = await stack.enter_async_context(
                Processes(folder, lock.handle, self._clock, self._terminal, is_strict=options.is_check)
            )
            self._processes = processes
            stack.callback(self._unwind)
            central = await processes.start_central(
                options.store,
                self._wish(options.port, CONSOLE_PORT),
                providers.certificate,
                may_move=options.port is None,
            )
            inbox = Inbox(catcher.store, central.url, f"127.0.0.1:{smtp_port}")
            wished = self._wish(options.inbox_port, INBOX_PORT)
            inbox_url = await listen(stack, inbox.listening, wished, may_move=options.inbox_port is None)
            api = CentralApi(central.url, _api_token(Path(central.token_file)))
            self._terminal.say("Setting up channels, lists and sites …")
            await set_up(api, central.url, folder, smtp_port)
            await set_up_chats(api, chats)
            if options.has_pair:
                await set_up_pair(api, central.url, folder, self._clock)
            await set_up_webhooks(api, receivers, receiver_url)
            application = CentralApi(central.url, await application_token(api))
            if options.is_check:
                self._terminal.say("Sending from the sites …")
            self._welcome(central.url, inbox_url, smtp_port)
            follower = Follower(api, central.url, self._terminal, catcher.arrived_at)
            await follower.begin()

            def sent(report: SentByScript) -> None:
                if options.is_check:
                    self._sent.append(report)
                follower.sent(report)

            pause_s = CHECK_PAUSE_S if options.is_check else PAUSE_S
            processes.start_sites(pause_s, sent, has_pair=options.has_pair)
            publishing = asyncio.create_task(publish(application, self._clock, pause_s))
            stack.callback(publishing.cancel)
            await self._watch(follower, api, inbox_url, receivers)

    async def _watch(self, follower: Follower, api: CentralApi, inbox_url: str, receivers: Receivers) -> None:
        """Print events, forever or until the check has succeeded."""
        while True:
            # Central may be restarting: users are invited to kill it.
            with suppress(Unavailable):
                await follower.poll()
                if self._options.is_check:
                    self._findings = await check.findings(api, inbox_url, self._sent, receivers)
                    if all(finding.is_so for finding in self._findings):
                        return
            await self._clock.sleep(POLL_S)

    def _verdict(self, seconds: float) -> int:
        is_good = bool(self._findings) and all(finding.is_so for finding in self._findings)
        how = "Check passed" if is_good else "Check interrupted" if self._stopping.is_set() else "Check failed"
        self._terminal.say(f"\n{how} after {seconds:.1f} s:", "green" if is_good else "red")
        for finding in self._findings:
            self._terminal.say(str(finding))
        if not is_good:
            self._terminal.print_kept()
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
                self._terminal.say(f"Port {wished} is in use; {what} uses port {got}.", "yellow")
        login = self._processes.login() if self._processes else None
        self._terminal.say(welcome.text(console_url, inbox_url, self._folder, login, has_pair=self._options.has_pair))

    def _wish(self, given: int | None, usual: int) -> int:
        """A check takes any free port, so that it can run beside a demo and other checks."""
        return given if given is not None else 0 if self._options.is_check else usual

    def _unwind(self) -> None:
        self._is_unwinding = True
        self._terminal.say("Stopping: scripts, agents, central, catcher …")

    def _stop_on_signals(self) -> None:
        """The first Ctrl-C stops in order, the second one immediately."""

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
            f"the store already has accounts, but their API token is not in {file}",
            hint="give --folder the folder of the demo that created them, or --store an empty database",
        ) from None


def _reason(error: BaseException) -> str:
    """The message of the first error in a group; other exceptions than expected ones are raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, DemoFailed | FieldpostError | OSError):
        raise error
    return str(error)
