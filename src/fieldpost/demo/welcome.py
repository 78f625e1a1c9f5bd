"""The demo's welcome text: addresses, login, what to try next."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fieldpost.demo.scenario import FLAKY, GONE, HEALTHY, REFUSALS, RETRY_DELAY_S, SITES


@dataclass(frozen=True, slots=True)
class Login:
    name: str
    password: str


def text(console_url: str, inbox_url: str, folder: Path, login: Login | None) -> str:
    first, second = SITES[0].name, SITES[1].name
    command, shown = _command(), shlex.quote(str(folder))
    here = f" --url {console_url}" if not console_url.endswith(":8025") else ""
    account = f"log in as {login.name}, password {login.password}" if login else "log in with your own account"
    times = "twice" if REFUSALS == 2 else f"{REFUSALS} times"
    return f"""
  Console   {console_url}   {account}
  Inbox     {inbox_url}   all delivered mails
  Folder    {folder.resolve()}   data, logs and secrets of this demo

  {first} and {second} send every few seconds, to three lists:
    {HEALTHY:<18} accepts every mail
    {FLAKY:<18} defers each mail {times} (451), then accepts it; retried after {RETRY_DELAY_S} s
    {GONE:<18} does not exist (550): its notifications are parked

  Try next
    Open the console and find out why a notification is parked.
    Send one yourself:
      {command} send --folder {shown}/{first} --to {HEALTHY} --subject "Hello" "From my own keyboard"
    Kill an agent or central: nothing is lost, and the demo restarts it:
      kill -9 $(cat {shown}/{second}/agent.lock)
    Use the command line:
      {command} notifications list --status parked --token-file {shown}/central/api-token{here}

  Ctrl-C stops everything; the next start continues with the same data.
"""


def _command() -> str:
    """The command line of the `fieldpost` that runs this demo."""
    called = Path(sys.argv[0]).resolve()
    on_path = shutil.which(called.name)
    if on_path is not None and Path(on_path).resolve() == called:
        return called.name
    return shlex.quote(min(os.path.relpath(called), str(called), key=len))
