"""Running the agent without typer: the process runs for months, and the command line's packages cost it 12 MB."""

import argparse
import os
import sys
from pathlib import Path


def agent_options(arguments: list[str]) -> argparse.Namespace | None:
    """The options of a plain `fieldpost site`; None for anything else, which typer parses."""
    if arguments[:1] != ["site"]:
        return None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--folder", "-f", type=Path, default=Path(os.environ.get("FIELDPOST_FOLDER") or "."))
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-json", action="store_true")
    try:
        found, others = parser.parse_known_args(arguments[1:])
    except argparse.ArgumentError:
        return None
    return None if others else found


def run_agent(folder: Path, log_level: str, log_json: bool) -> None:
    """Run the agent of this folder until SIGTERM or SIGINT."""
    import asyncio

    if "rich" not in sys.modules:
        # structlog would load rich for coloured tracebacks, which our logs do not use: 4 MB.
        sys.modules["rich"] = None  # type: ignore[assignment]
        import structlog  # noqa: F401

        del sys.modules["rich"]
    from fieldpost.run import logs
    from fieldpost.run.site import run_site

    logs.configure(log_level, json=log_json)
    asyncio.run(run_site(folder))
