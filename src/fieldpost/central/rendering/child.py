"""The child process that renders templates: `python -m fieldpost.central.rendering.child`.

It reads batches as lines of JSON, `{"templates": {key: {part: source}}, "jobs": [[key, variables]]}`, and answers each
job with a line: the text of each part, or `{"error", "variable"}`; a job without variables lists the names that the
template uses. Limits on memory and CPU time end the process, and the parent starts another one: nothing inside this
process has to be trusted. Templates get plain data, parsed from JSON here: minijinja calls methods of Python objects,
and those of dict and list cannot leave the process.
"""

import contextlib
import importlib
import json
import re
import signal
import sys
from collections.abc import Mapping
from typing import Any

CPU_S = 0.05
"""CPU time of one job. SIGPROF ends the process, even in native code."""
MEMORY_BYTES = 64 * 1024 * 1024
"""Memory beyond that of the idle process."""
OUTPUT_MAX = 256 * 1024
"""Characters of a rendered text; the limits in bytes are checked by the parent."""
_UNDEFINED = re.compile(r"`([^`]+)` is undefined")


def main() -> None:
    """Serve batches from stdin until it is closed."""
    minijinja = importlib.import_module("minijinja")
    _limit_memory()
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        batch = json.loads(line)
        environments: dict[str, Any] = {}
        for key, variables in batch["jobs"]:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            answer = _answer(minijinja, environments, key, batch["templates"][key], variables)
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


def _answer(
    minijinja: Any, environments: dict[str, Any], key: str, sources: Mapping[str, str], variables: str | None
) -> Mapping[str, object]:
    try:
        if variables is None:
            return {
                "names": sorted(
                    {
                        n
                        for one in sources.values()
                        for n in _environment(minijinja).undeclared_variables_in_str(one, nested=True)
                    }
                )
            }
        if key not in environments:
            environments[key] = _environment(minijinja)
            for part, source in sources.items():
                environments[key].add_template(part, source)
        # Each part gets its own data: a template can change them.
        texts = {part: environments[key].render_template(part, **_parse(variables)) for part in sources}
    except minijinja.TemplateError as error:
        message = str(error).splitlines()[0]
        found = _UNDEFINED.search(message)
        return {"error": message, "variable": found[1] if found else None}
    except MemoryError:
        return {"error": "needs too much memory", "variable": None}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500], "variable": None}
    for part, text in texts.items():
        if len(text) > OUTPUT_MAX:
            return {"error": f"the {part} has {len(text)} characters, at most {OUTPUT_MAX}", "variable": None}
    return texts


def _environment(minijinja: Any) -> Any:
    made = minijinja.Environment()
    made.undefined_behavior = "strict"
    made.auto_escape_callback = lambda _name: None  # adapters escape for their channel
    made.keep_trailing_newline = True
    made.pycompat = False  # no methods of strings: str.format is a second language
    made.debug = True  # names undefined variables in its errors
    made.remove_global("debug")
    return made


def _parse(variables: str) -> dict[str, Any]:
    # An integer beyond 64 bits would be a Python object; as text it prints the same.
    found: dict[str, Any] = json.loads(variables, parse_int=lambda text: int(text) if len(text) < 19 else text)
    return found


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", encoding="ascii") as statm:
            limit = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
