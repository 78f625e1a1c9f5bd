"""Disks of the test's own: one that is small, and one that can lose its power or fail. Both need root."""

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.need import cannot_have, need

_SHUT_DOWN = 0x8004587D
"""ext4 stops at once, as a machine without power does; with this flag not even its journal is written."""
_WITHOUT_LOG_FLUSH = struct.pack("I", 2)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A disk of so many MiB, mounted on the folder."""
    need("mount")
    folder.mkdir()
    _mount_or_skip("-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _umount(folder)


def enlarge(folder: Path, mebibytes: int) -> None:
    """Give a small disk more room."""
    subprocess.run(["mount", "-o", f"remount,size={mebibytes}m", str(folder)], check=True)


def fill_up(folder: Path) -> None:
    """Leave not a byte free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        size = 1024 * 1024
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


class PowerDisk:
    """An ext4 in a file, mounted by a loop device: `cut` is the end of its power, `fail` an error after which it is
    read-only, `mount` the machine's next start.

    A mount namespace that another test makes meanwhile (`ip netns exec`, `unshare -m --propagation slave`) has a copy
    of every mount, and a disk without power would live on in it. So the disk lies in a shared mount, whose copies lose
    it too.
    """

    def __init__(self, folder: Path, mebibytes: int = 48) -> None:
        need("mount")
        self._shared = folder / "shared"
        self.path = self._shared / "disk"
        self._image = folder / "disk.image"
        self.path.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(mebibytes * 1024 * 1024)
        make = ["mkfs.ext4", "-q", "-F", "-e", "remount-ro", str(self._image)]
        subprocess.run(make, check=True, capture_output=True)
        self._is_mounted = False

    def __enter__(self) -> "PowerDisk":
        _mount_or_skip("--bind", str(self._shared), str(self._shared))
        _mount_or_skip("--make-shared", str(self._shared))
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_mounted:
            self.unmount()
        _umount(self._shared)

    def mount(self) -> None:
        _mount_or_skip("-t", "ext4", "-o", "loop", str(self._image), str(self.path))
        self._is_mounted = True

    def unmount(self) -> None:
        _umount(self.path)
        self._is_mounted = False

    def cut(self) -> None:
        """From now on nothing reaches the disk, and what did not is lost."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUT_DOWN, _WITHOUT_LOG_FLUSH)
        finally:
            os.close(handle)

    def fail(self) -> None:
        """The file system has found an error: it is read-only from now on, also for files that are open."""
        number = self.path.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        try:
            Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")
        except OSError as error:
            cannot_have("mount", f"this kernel makes no error of a file system: {error}")

    def repair(self) -> None:
        """What a person does about it; whoever had files open there must have ended."""
        self.unmount()
        subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True, check=False)
        self.mount()

    def restart(self) -> None:
        """What the machine finds when its power is back; whoever had files open there must have ended."""
        self.unmount()
        self.mount()


def _mount_or_skip(*arguments: str) -> None:
    mounted = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if mounted.returncode:
        cannot_have("mount", f"this kernel mounts no such disk: {mounted.stderr.strip()}")


def _umount(folder: Path) -> None:
    for _ in range(50):
        done = subprocess.run(["umount", str(folder)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.1)  # a process that was killed lets go of its files a moment later
    # A failed test may still have files open there. Without its name the disk ends when they are closed.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    raise RuntimeError(f"{done.stderr.strip()}: a process still uses it")
