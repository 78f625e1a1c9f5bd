"""The demo's welcome text: addresses, login, what to try next."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fieldpost.demo.pair import PAIRED, SECOND
from fieldpost.demo.scenario import (
    ALARM,
    FAILING_S,
    FLAKY,
    GONE,
    HEALTHY,
    RECOVERING,
    REFUSALS,
    RETRY_DELAY_S,
    SITES,
    SLACK_FAILURES,
    STEADY,
    TELEGRAM_PAUSE_S,
)


@dataclass(frozen=True, slots=True)
class Login:
    name: str
    password: str


def text(console_url: str, inbox_url: str, folder: Path, login: Login | None, *, has_pair: bool = False) -> str:
    first, second = SITES[0].name, SITES[1].name
    command, shown = _command(), shlex.quote(str(folder))
    here = f" --url {console_url}" if not console_url.endswith(":8025") else ""
    account = f"log in as {login.name}, password {login.password}" if login else "log in with your own account"
    times = "twice" if REFUSALS == 2 else f"{REFUSALS} times"
    slack = "twice" if SLACK_FAILURES == 2 else f"{SLACK_FAILURES} times"
    return f"""
  Console   {console_url}   {account}
  Inbox     {inbox_url}   all delivered mails, chats and text messages
  Folder    {folder.resolve()}   data, logs and secrets of this demo

  {first} and {second} send every few seconds:
    {HEALTHY:<18} accepts every mail
    {FLAKY:<18} defers each mail {times} (451), then accepts it; retried after {RETRY_DELAY_S} s
    {GONE:<18} does not exist (550): its notifications are parked

  Alarms go to {ALARM}, a list of lists, and reach a mailbox, a card in Teams, chats in Slack and Telegram, and a phone:
    Slack fails {slack} at first, and Telegram asks to wait for {TELEGRAM_PAUSE_S} s: see Channels in the console

  An application publishes work orders, to two receivers of webhooks:
    {STEADY:<18} accepts every webhook
    {RECOVERING:<18} fails for {FAILING_S:.0f} s (503) and is blocked, then recovers and gets everything

  Try next
    Open Subscriptions in the console, watch {RECOVERING} recover, and read the log of its deliveries.
    Open the console and find out why a notification is parked.
    Send one yourself, to a mailbox or everywhere:
      {command} send --folder {shown}/{first} --to {HEALTHY} --subject "Hello" "From my own keyboard"
      {command} send --folder {shown}/{first} --to {ALARM} --subject "Hello" "In every room"
    Kill an agent or central: nothing is lost, and the demo restarts it:
      kill -9 $(cat {shown}/{second}/agent.lock)
{_pair_text(command, shown) if has_pair else ""}    Use the command line:
      {command} notifications list --status parked --token-file {shown}/central/api-token{here}

  Ctrl-C stops everything; the next start continues with the same data.
"""


def _pair_text(command: str, shown: str) -> str:
    return f"""\
    {PAIRED} is a pair. Freeze its leader: within 15 s the other node leads; thaw it, and it follows:
      kill -STOP $(cat {shown}/{PAIRED}/agent.lock); sleep 20; {command} site status --folder {shown}/{SECOND}
      kill -CONT $(cat {shown}/{PAIRED}/agent.lock)
    Switch back on purpose:
      {command} site promote --folder {shown}/{PAIRED}
"""


def _command() -> str:
    """The command line of the `fieldpost` that runs this demo."""
    called = Path(sys.argv[0]).resolve()
    on_path = shutil.which(called.name)
    if on_path is not None and Path(on_path).resolve() == called:
        return called.name
    return shlex.quote(min(os.path.relpath(called), str(called), key=len))
