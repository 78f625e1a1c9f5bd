"""`python -m bench`: run benchmarks by name, or all.

Both sides of a comparison run with the garbage collector set as in a central process, except where the measured code
runs in scripts and applications.
"""

import argparse
import gc
import importlib

import uvloop

from bench.harness import Report, log_to_nowhere
from bench.stores import servers
from fieldpost.run import gc_tuning

NAMES = (
    "enqueue",
    "ingest",
    "publish",
    "forward",
    "backlog",
    "pair",
    "dispatch",
    "audit",
    "latency",
    "email",
    "fleet",
    "table",
    "console",
    "webhook",
    "chat",
    "apprise",
    "outbox",
    "rate",
    "zgw",
)
OF_SCRIPTS = ("enqueue", "pair", "outbox")
SCRIPT_THRESHOLD = gc.get_threshold()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Fieldpost against plain references.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; each benchmark ends within 50 s")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=(), help="table, console: how large, instead of their own"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    log_to_nowhere()
    report = Report(given.json)
    with servers() as stores:
        for name in given.names or NAMES:
            more = {"rows": given.rows} if name in ("table", "console") else {}
            run = importlib.import_module(f"bench.{name}").run
            if name in OF_SCRIPTS:
                gc.set_threshold(*SCRIPT_THRESHOLD)
            else:
                gc_tuning.set_aside()
            uvloop.run(run(report, stores, given.quick, **more))


if __name__ == "__main__":
    main()
