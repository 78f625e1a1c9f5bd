"""`python -m uptime uptime.toml`: run the monitor until SIGTERM or Ctrl-C."""

import argparse
import signal
import threading
from pathlib import Path

from .config import InvalidConfig, read_config
from .monitor import Monitor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m uptime", description="An uptime and certificate monitor.")
    parser.add_argument("config", type=Path, help="the settings, such as uptime.toml")
    given = parser.parse_args()
    try:
        config = read_config(given.config)
    except InvalidConfig as error:
        parser.error(str(error))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    monitor = Monitor(config)
    print(f"checking {len(config.services)} services every {config.interval_s:g} s", flush=True)
    try:
        monitor.run(stopping)
    finally:
        monitor.close()


if __name__ == "__main__":
    main()
