"""Disks that fail under a site or an embedded central, each as one function, for short forms and long ones."""

import threading

from support.disks import PowerDisk
from support.site_writers import ENDLESS, ids_in, start

CONFIRMED_BEFORE_CUT = 60


def cut_the_power_of_a_site(disk: PowerDisk) -> int:
    """Four threads of a script send while the power goes; how many sends were confirmed, all of which are there."""
    path = disk.path / "buffer.db"
    writer = start(ENDLESS, path)
    confirmed: list[str] = []
    enough = threading.Event()

    def listen() -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            confirmed.append(line.strip())
            if len(confirmed) >= CONFIRMED_BEFORE_CUT:
                enough.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert enough.wait(30), "the script sends nothing"
        disk.cut()
    finally:
        writer.kill()
        writer.wait()
        listener.join()
    disk.restart()
    # A line that the kill cut short confirmed nothing.
    whole = {line for line in confirmed if len(line) == 36}
    assert ids_in(path) >= whole
    return len(whole)
