"""Makes the pages of docs/reference that say what the code says: settings, command line, API, verbs, errors, log
events, KPIs and metrics.

    python tools/reference --write      write them (make docs)
    python tools/reference --check      fail, naming each page that is out of date

A page is made from the code alone, so it cannot be wrong for long: a test runs --check.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import page_api
import page_cli
import page_errors
import page_events
import page_kpis
import page_local_api
import page_metrics
import page_settings
import page_verbs

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path("docs/reference")
PAGES: dict[str, Callable[[Path], str]] = {
    "settings.md": page_settings.render,
    "cli.md": page_cli.render,
    "api.md": page_api.render,
    "verbs.md": page_verbs.render,
    "local-api.md": page_local_api.render,
    "errors.md": page_errors.render,
    "log-events.md": page_events.render,
    "kpis.md": page_kpis.render,
    "metrics.md": page_metrics.render,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="The generated pages of docs/reference.")
    parser.add_argument("--folder", type=Path, default=ROOT / FOLDER, help="where the pages are")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the pages")
    what.add_argument("--check", action="store_true", help="fail on pages that are out of date")
    asked = parser.parse_args()

    stale = []
    for name, render in PAGES.items():
        file = asked.folder / name
        text = render(ROOT)
        if asked.write:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"{FOLDER / name} is out of date: run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
