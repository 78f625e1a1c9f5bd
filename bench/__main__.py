"""`python -m bench`: run benchmarks by name, or all."""

import argparse
import importlib

import uvloop

from bench.harness import Report, log_to_nowhere
from bench.stores import servers

NAMES = (
    "enqueue",
    "ingest",
    "publish",
    "forward",
    "backlog",
    "dispatch",
    "latency",
    "email",
    "fleet",
    "table",
    "console",
    "webhook",
)


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
            uvloop.run(importlib.import_module(f"bench.{name}").run(report, stores, given.quick, **more))


if __name__ == "__main__":
    main()
