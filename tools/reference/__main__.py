"""Generate the reference pages and the API coverage report from the code.

    python tools/reference --write      write the pages (make docs)
    python tools/reference --check      fail and name each page that is out of date

The pages contain nothing but facts from the code; a test runs --check.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import page_api
import page_channel_types
import page_cli
import page_coverage
import page_errors
import page_events
import page_kpis
import page_local_api
import page_metrics
import page_settings

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path("docs")
PAGES: dict[str, Callable[[Path], str]] = {
    "reference/settings.md": page_settings.render,
    "reference/cli.md": page_cli.render,
    "reference/api.md": page_api.render,
    "reference/local-api.md": page_local_api.render,
    "reference/channel-types.md": page_channel_types.render,
    "reference/errors.md": page_errors.render,
    "reference/log-events.md": page_events.render,
    "reference/kpis.md": page_kpis.render,
    "reference/metrics.md": page_metrics.render,
    "contributing/api-coverage.md": page_coverage.render,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate pages of docs from the code.")
    parser.add_argument("--folder", type=Path, default=ROOT / FOLDER, help="the docs folder")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the pages")
    mode.add_argument("--check", action="store_true", help="fail on pages that are out of date")
    given = parser.parse_args()

    gc.disable()  # the syntax trees of all modules stay alive; collections only walk them again and again
    stale = []
    for name, render in PAGES.items():
        file = given.folder / name
        text = render(ROOT)
        if given.write:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"{FOLDER / name} is out of date: run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
