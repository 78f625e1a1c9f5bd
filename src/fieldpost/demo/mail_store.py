"""Storage of the catcher: each mail or chat message is one JSON line in a file, so that it survives a restart.

The line is written before the sender gets its answer (`MailServer(on_mail=store.add)`). There is no fsync: a power cut
may lose the last messages, a killed process does not. The file is trimmed to the newest ones at start, and whenever it
holds twice that many.
"""

import errno
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import FileIO
from pathlib import Path
from typing import Self

import msgspec

from fieldpost.demo.chats import ReceivedChat
from fieldpost.testing.mail import ReceivedMail

Caught = ReceivedMail | ReceivedChat


class MailStore:
    """The newest messages, in memory and in a file."""

    def __init__(self, path: Path, mails_max: int = 5_000) -> None:
        """Open the file, creating it if missing, and read it. Raises OSError."""
        self._path = path
        self._mails: deque[Caught] = deque(maxlen=mails_max)
        self._lines = 0
        self.unreadable_lines = 0
        """Invalid lines found at start, such as the last line of a process that was killed while writing."""
        if path.exists():
            path.chmod(0o600)
        self._read()
        self._last_number = self._mails[-1].number if self._mails else 0
        self._file = self._rewrite() if self._lines > len(self._mails) else self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def mails(self) -> Sequence[Caught]:
        """Oldest first; numbers continue after a restart."""
        return list(self._mails)

    def add(self, mail: Caught) -> None:
        """Store this message. Raises OSError if it cannot be written; then it is not stored."""
        kept: Caught = replace(mail, number=self._last_number + 1)
        self._append(_to_line(kept))
        self._last_number = kept.number
        self._mails.append(kept)
        self._lines += 1
        if self._lines >= 2 * (self._mails.maxlen or 1):
            self._file.close()
            self._file = self._rewrite()

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for line in file:
                self._lines += 1
                try:
                    self._mails.append(_from_line(line))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self.unreadable_lines += 1

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "only a part of the mail could be written")
        except OSError:
            # An incomplete line would corrupt the next one, too.
            self._file.truncate(size)
            raise

    def _open(self) -> FileIO:
        return FileIO(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a")

    def _rewrite(self) -> FileIO:
        new = self._path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(map(_to_line, self._mails))
        os.replace(new, self._path)
        self._lines = len(self._mails)
        return self._open()


def _from_line(line: bytes) -> Caught:
    try:
        return msgspec.json.decode(line, type=ReceivedMail)
    except msgspec.ValidationError:
        return msgspec.json.decode(line, type=ReceivedChat)


def _to_line(mail: Caught) -> bytes:
    return msgspec.json.encode(asdict(mail)) + b"\n"
