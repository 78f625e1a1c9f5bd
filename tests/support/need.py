"""Things that some machines cannot offer: their tests are skipped with the reason, but fail with CI=true.

A CI that cannot have one says so: `CI_WITHOUT=root,mount .ci/run` leaves out the tests that need it. Every run lists
what it left out.

    @pytest.mark.needs("root")      on a test or module
    need("mount")                   in a fixture or helper
    cannot_have("postgres", "…")    where only a try shows it
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

KANNEL_TESTS = "/usr/lib/kannel/test"
"""Where Debian keeps the programs that test Kannel."""
ZGW_PYTHON = Path(sys.executable).parent.parent / "zgw" / "bin" / "python"
"""The environment that tools/zgw creates."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _root() -> str | None:
    return None if os.name == "posix" and os.geteuid() == 0 else "this user is not root"


def _mount() -> str | None:
    missing = [name for name in ("mount", "mkfs.ext4") if shutil.which(name, path=_PATH) is None]
    return _root() or (f"no {' and no '.join(missing)} (see tools/strace)" if missing else None)


@cache
def _ptrace() -> str | None:
    if shutil.which("strace") is None:
        return "no strace: install the package `strace` (see tools/strace)"
    tried = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else None


def _postfix() -> str | None:
    if shutil.which("postfix", path=_PATH) is None:
        return "no Postfix: install the package `postfix` (see tools/postfix)"
    return _root()


def _mariadb() -> str | None:
    missing = [
        name for name in ("mariadbd", "mariadb-install-db", "my_print_defaults") if not shutil.which(name, path=_PATH)
    ]
    return f"no {' and no '.join(missing)}: install MariaDB (see tools/mariadb)" if missing else None


def _tinyproxy() -> str | None:
    if shutil.which("tinyproxy", path=_PATH) is None:
        return "no tinyproxy: install the package `tinyproxy` (see tools/tinyproxy)"
    return None


def _apprise() -> str | None:
    return None if find_spec("apprise") is not None else "Apprise is not installed: run `make setup`"


def _pgbouncer() -> str | None:
    if shutil.which("pgbouncer", path=_PATH) is None:
        return "no PgBouncer: install the package `pgbouncer` (see tools/pgbouncer)"
    return None


def _kannel() -> str | None:
    missing = [name for name in ("bearerbox", "smsbox") if not shutil.which(name, path=_PATH)]
    missing += [] if shutil.which("fakesmsc", path=KANNEL_TESTS) else ["fakesmsc"]
    return f"no {' and no '.join(missing)}: install Kannel (see tools/kannel)" if missing else None


def _zgw() -> str | None:
    return None if ZGW_PYTHON.exists() else "no libraries of the ZGW APIs (see tools/zgw)"


def _linux() -> str | None:
    return None if sys.platform == "linux" else "this is not Linux"


def _only_a_try_shows() -> None:
    return None


NEEDS: dict[str, Callable[[], str | None]] = {
    "root": _root,
    "mount": _mount,
    "ptrace": _ptrace,
    "postfix": _postfix,
    "mariadb": _mariadb,
    "apprise": _apprise,
    "pgbouncer": _pgbouncer,
    "tinyproxy": _tinyproxy,
    "kannel": _kannel,
    "zgw": _zgw,
    "linux": _linux,
    "namespaces": _root,
    "postgres": _only_a_try_shows,
    "chromium": _only_a_try_shows,
    "curl": _only_a_try_shows,
    "faketime": _only_a_try_shows,
    "wheels": _only_a_try_shows,
}
"""What a test may need, and the reason why this machine does not have it."""


def left_out() -> set[str]:
    """What this CI cannot have, by CI_WITHOUT. Raises UsageError for a name that no test needs."""
    given = {name.strip() for name in os.environ.get("CI_WITHOUT", "").split(",") if name.strip()}
    if unknown := given - NEEDS.keys():
        known = ", ".join(NEEDS)
        raise pytest.UsageError(f"CI_WITHOUT names {', '.join(sorted(unknown))}; it can name {known}")
    return given


def need(*names: str) -> None:
    """Skip the test, or fail it with CI=true, if this machine does not have all of these."""
    for name in names:
        if name in left_out():
            pytest.skip(f"without {name}: CI_WITHOUT names it")
        if (reason := NEEDS[name]()) is not None:
            cannot_have(name, reason)


def cannot_have(name: str, reason: str) -> NoReturn:
    """Skip the test, or fail it with CI=true."""
    assert name in NEEDS, name
    if os.environ.get("CI", "").lower() == "true" and name not in left_out():
        pytest.fail(f"without {name}: {reason} (CI=true: a failure; CI_WITHOUT={name} leaves it out)", pytrace=False)
    pytest.skip(f"without {name}: {reason}")


def summary(reasons: Iterable[str]) -> list[str]:
    """Lines about the skipped tests of a run, by reason, the most frequent first."""
    counted = Counter(reasons)
    return [f"{count} {'test' if count == 1 else 'tests'}: {reason}" for reason, count in counted.most_common()]
