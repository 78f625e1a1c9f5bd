"""The system's resolver with a name server that does not answer for 20 of 1,000 names.

The test runs in its own network and mount namespaces, where the name server has port 53 and is in `resolv.conf`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from support.need import cannot_have

SCRIPT = """
import asyncio, fcntl, socket, struct, threading
from fieldpost.outbound.resolver import SystemResolver

def answer(server):
    while True:
        query, sender = server.recvfrom(2048)
        end = query.index(0, 12)
        if query[13:].startswith(b"silent"):
            continue
        question, kind = query[12 : end + 5], struct.unpack(">H", query[end + 1 : end + 3])[0]
        found = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\5\\0\\4\\x7f\\0\\0\\2" if kind == 1 else b""
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if found else 0, 0, 0)
        server.sendto(head + question + found, sender)

async def main():
    resolve = SystemResolver(60)
    silent = [asyncio.ensure_future(resolve(f"silent{number}.example.", 443)) for number in range(20)]
    others = [resolve(f"name{number}.example.", 443) for number in range(980)]
    found = await asyncio.gather(*others)
    print(found.count(["127.0.0.2"]), sum(not task.done() for task in silent))

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Bring the loopback interface up (SIOCSIFFLAGS, IFF_UP).
fcntl.ioctl(server, 0x8914, struct.pack("16sH14x", b"lo", 1))
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
server.bind(("127.0.0.9", 53))
threading.Thread(target=answer, args=(server,), daemon=True).start()
asyncio.run(main())
"""


@pytest.mark.needs("linux", "namespaces")
def test_silent_names_delay_no_other_name_of_the_system(tmp_path: Path) -> None:
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.0.0.9\noptions timeout:20 attempts:1\n")
    mount = f"mount --bind {settings} /etc/resolv.conf"
    if subprocess.run(
        ["unshare", "-mn", "--propagation", "slave", "sh", "-c", mount], capture_output=True, check=False
    ).returncode:
        cannot_have("namespaces", "namespaces are not permitted here")
    started = [
        "unshare",
        "-mn",
        "--propagation",
        "slave",
        "sh",
        "-c",
        f'{mount} && exec "$0" -c "$1"',
        sys.executable,
        SCRIPT,
    ]
    done = subprocess.run(started, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.split() == ["980", "20"], done.stderr
