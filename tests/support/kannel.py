"""Kannel on loopback: bearerbox, smsbox and Kannel's own fakesmsc as the network.

with running_kannel(folder) as kannel:
    kannel.url                          # the sendsms URL, for user `fieldpost` with password `secret`
    kannel.arrived(3)                   # the messages that the network got, as the phones show them
"""

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote_to_bytes
from urllib.request import urlopen

from support.need import KANNEL_TESTS

USERNAME, PASSWORD = "fieldpost", "canary-kannel"
CONFIG = """\
group = core
admin-port = {admin}
admin-password = admin
admin-interface = 127.0.0.1
smsbox-port = {box}
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1
box-deny-ip = "*.*.*.*"
store-type = file
store-location = {folder}/store
dlr-storage = internal
sms-resend-freq = 1

group = smsc
smsc = fake
smsc-id = fake
port = {network}
connect-allow-ip = 127.0.0.1

group = smsbox
bearerbox-host = 127.0.0.1
bearerbox-port = {box}
sendsms-port = {send}
sendsms-interface = 127.0.0.1
global-sender = 13013

group = sendsms-user
username = {username}
password = {password}
max-messages = {messages_max}
concatenation = true
"""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One segment as the network got it."""

    number: str
    reference: int
    """Equal for the segments of one message to a number; -1 for a message of one segment."""
    count: int
    index: int
    raw: bytes


class Kannel:
    """The three processes. `stop` and `start` keep store and ports."""

    def __init__(self, folder: Path, messages_max: int) -> None:
        self.folder = folder
        self._ports = dict(zip(("admin", "box", "network", "send"), _free_ports(4), strict=True))
        config = CONFIG.format(
            **self._ports, folder=folder, username=USERNAME, password=PASSWORD, messages_max=messages_max
        )
        self._config = folder / "kannel.conf"
        self._config.write_text(config)
        self._log = folder / "network.log"
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['send']}/cgi-bin/sendsms"

    def start(self) -> None:
        path = "/usr/sbin:/usr/bin:/bin"
        bearerbox, smsbox = (str(shutil.which(name, path=path)) for name in ("bearerbox", "smsbox"))
        self._run([bearerbox, "-v", "4", str(self._config)])
        self._until_open("admin")
        self._until_open("network")
        with self._log.open("ab") as log:
            self._run(
                [
                    f"{KANNEL_TESTS}/fakesmsc", "-H", "127.0.0.1", "-r", str(self._ports["network"]), "-i", "0.01",
                    "-m", "0", "1 1 text none",
                ],
                log,
            )  # fmt: skip
        self._run([smsbox, "-v", "4", str(self._config)])
        self._until_open("send")
        self._until(lambda: b"online" in self._status(), "the network to be attached")

    def stop(self, kill: bool = False) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._running = []

    def detach_network(self) -> None:
        """The network goes away: Kannel keeps new messages for later."""
        network = self._running[1]
        network.terminate()
        network.wait(10)
        self._until(lambda: b"online" not in self._status(), "the network to be detached")

    def arrived(self, count: int, timeout_s: float = 60) -> Sequence[tuple[str, str]]:
        """Wait for this many different messages; number and text of each, in the order in which they became whole."""
        self._until(lambda: len(set(self._whole())) >= count, f"{count} messages to arrive", timeout_s)
        return self._whole()

    def raw(self) -> str:
        return self._log.read_text("latin-1") if self._log.exists() else ""

    def _whole(self) -> list[tuple[str, str]]:
        whole: list[tuple[str, str]] = []
        begun: dict[tuple[str, int], dict[int, bytes]] = {}
        for part in _parts(self.raw()):
            parts = begun.setdefault((part.number, part.reference), {})
            parts[part.index] = part.raw
            if len(parts) == part.count:
                whole.append((part.number, _decoded(b"".join(raw for _, raw in sorted(parts.items())))))
                del begun[part.number, part.reference]
        return whole

    def _status(self) -> bytes:
        try:
            with urlopen(f"http://127.0.0.1:{self._ports['admin']}/status.txt?password=admin", timeout=5) as answer:
                return bytes(answer.read())
        except (URLError, OSError):
            return b""

    def _run(self, command: Sequence[str], output: object = None) -> None:
        with (self.folder / "kannel.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(command, cwd=self.folder, stdout=output or log, stderr=output or log)  # type: ignore[call-overload]
            )

    def _until_open(self, port: str) -> None:
        def is_open() -> bool:
            try:
                socket.create_connection(("127.0.0.1", self._ports[port]), 1).close()
            except OSError:
                return False
            return True

        self._until(is_open, f"the {port} port to open")

    def _until(self, is_so: object, what: str, timeout_s: float = 60) -> None:
        ends_at = time.monotonic() + timeout_s
        while not is_so():  # type: ignore[operator]
            if time.monotonic() > ends_at:
                log = (self.folder / "kannel.log").read_text("latin-1")[-2000:]
                raise TimeoutError(f"waited {timeout_s:g} s for {what}: {log}\n{self.raw()[-2000:]}")
            time.sleep(0.05)


_GOT = re.compile(r"Got message \d+: <(.*?)>(?=\n\d{4}-|\n?\Z)", re.DOTALL)
_HEAD = re.compile(r"\S+ (\+\d+) (?:udh (\S+) )?(text|data|ucs-2) (.*)", re.DOTALL)


def _parts(log: str) -> Iterator[MessagePart]:
    """fakesmsc prints a line of its protocol as a message, so a text of several lines is several messages."""
    lines = [found[1] for found in _GOT.finditer(log)]
    for at, line in enumerate(lines):
        if (head := _HEAD.fullmatch(line)) is None:
            continue
        header = _unquoted(head[2] or "")
        text = _unquoted(head[4]) if head[3] != "text" else head[4].encode("latin-1")
        more = takewhile(lambda other: _HEAD.fullmatch(other) is None, lines[at + 1 :])
        text = b"\n".join([text, *(other.encode("latin-1") for other in more)])
        yield MessagePart(head[1], *((header[3], header[4], header[5]) if header else (-1, 1, 1)), text)


def _unquoted(text: str) -> bytes:
    return unquote_to_bytes(text.replace("+", " "))


def _decoded(raw: bytes) -> str:
    """UTF-8, or UTF-16 if the text needed it: the protocol does not say which."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-16-be")
    return raw.decode("utf-16-be") if "\0" in text else text


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


@contextmanager
def running_kannel(folder: Path, messages_max: int = 3) -> Iterator[Kannel]:
    kannel = Kannel(folder, messages_max)
    try:
        kannel.start()
        yield kannel
    finally:
        kannel.stop()
