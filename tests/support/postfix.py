"""A real Postfix of the test's own: on loopback, with its own folders, delivering to mail folders below them.

It needs root, since Postfix changes between users, and the package `postfix` (tools/postfix installs it where it can).
Nothing of the machine's own Postfix is used but its programs.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from support.need import need
from support.ports import free_port

DOMAIN = "plant.example"
_PROGRAM = shutil.which("postfix", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

_MASTER = """
127.0.0.1:{port} inet n - n - - smtpd
pickup    unix n - n 60 1 pickup
cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
verify    unix - - n - 1 verify
flush     unix n - n 1000? 0 flush
proxymap  unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
smtp      unix - - n - - smtp
error     unix - - n - - error
retry     unix - - n - - error
discard   unix - - n - - discard
local     unix - n n - - local
virtual   unix - n n - - virtual
anvil     unix - - n - 1 anvil
scache    unix - - n - 1 scache
postlog   unix-dgram n - n - 1 postlogd
"""

_MAIN = """
compatibility_level = 3.6
queue_directory = {root}/queue
data_directory = {root}/data
command_directory = /usr/sbin
daemon_directory = {daemons}
mail_owner = postfix
setgid_group = postdrop
maillog_file_prefixes = {root}
maillog_file = {root}/log
myhostname = mail.{domain}
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
alias_database =
virtual_mailbox_domains = {domain}
virtual_mailbox_base = {root}/mail
virtual_mailbox_maps = static:all/
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
virtual_minimum_uid = 1
smtputf8_enable = yes
default_transport = error:outside
smtpd_peername_lookup = no
"""


def need_postfix() -> None:
    """Skip without one; with CI=true fail."""
    need("postfix")


class Postfix:
    """`with Postfix() as postfix`: mails to postfix.port, read by `received`."""

    def __init__(self, *settings: str) -> None:
        """`settings` are further lines of main.cf."""
        self._settings = settings
        # Below the system's own folder for such things, since Postfix' users have to get through to it.
        self.root = Path(tempfile.mkdtemp(prefix="fieldpost-postfix-"))
        self.port = free_port()

    def __enter__(self) -> "Postfix":
        nobody, postfix = pwd.getpwnam("nobody"), pwd.getpwnam("postfix")
        self.root.chmod(0o755)
        for name, owner in (("queue", 0), ("data", postfix.pw_uid), ("mail", nobody.pw_uid), ("config", 0)):
            (self.root / name).mkdir()
            os.chown(self.root / name, owner, -1)
        values = {"root": self.root, "domain": DOMAIN, "port": self.port, "uid": nobody.pw_uid, "gid": nobody.pw_gid}
        daemons = next(d for d in ("/usr/lib/postfix/sbin", "/usr/libexec/postfix") if Path(d).is_dir())
        main = "\n".join([_MAIN.format(**values, daemons=daemons), *self._settings, ""])
        (self.root / "config/main.cf").write_text(main)
        (self.root / "config/master.cf").write_text(_MASTER.format(**values))
        self._control("start")
        for _ in range(300):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.1)
        raise RuntimeError(f"Postfix does not listen: {self.log()}")

    def __exit__(self, *_: object) -> None:
        self._control("stop", is_checked=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def received(self, count: int, timeout_s: float = 30) -> list[bytes]:
        """All mails delivered so far, once there are so many; lines ended by LF, as Postfix keeps them."""
        until = time.monotonic() + timeout_s
        while True:
            found = sorted((self.root / "mail").glob("all/new/*"))
            if len(found) >= count:
                return [file.read_bytes() for file in found]
            if time.monotonic() > until:
                raise TimeoutError(f"{len(found)} of {count} mails came: {self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        file = self.root / "log"
        return file.read_text()[-3000:] if file.exists() else "no log"

    def _control(self, word: str, *, is_checked: bool = True) -> None:
        assert _PROGRAM is not None
        command = [_PROGRAM, "-c", str(self.root / "config"), word]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if is_checked and ran.returncode:
            raise RuntimeError(f"postfix {word} failed: {ran.stdout}{ran.stderr}{self.log()}")
