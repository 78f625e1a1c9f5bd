"""What runs where: a site has no way to send mail and no central store, central has no site's buffer."""

import subprocess
import sys

import pytest

LOADED = """
import importlib, pkgutil, sys
for name in sys.argv[1].split(","):
    room = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(room, "__path__", []), name + "."):
        if not module.name.endswith(".migrations.env"):  # it is Alembic's to run, not to import
            importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


def loaded_by(*names: str) -> set[str]:
    """The modules in a fresh process that has imported all of these backend."""
    command = [sys.executable, "-c", LOADED, ",".join(names)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.req("TOP-02")
def test_site_loads_neither_mail_library_nor_central_package() -> None:
    loaded = loaded_by("fieldpost.site", "fieldpost.run.site")
    assert {"fieldpost.site.agent", "apsw"} <= loaded, "the look itself sees what is there"
    assert not {"smtplib", "aiosmtplib", "sqlalchemy", "asyncpg"} & loaded
    assert not [name for name in loaded if name.startswith("fieldpost.central")]


@pytest.mark.req("TOP-08")
def test_central_has_no_buffer_except_its_table() -> None:
    loaded = loaded_by("fieldpost.central", "fieldpost.front", "fieldpost.run.central")
    assert {"fieldpost.central.store.notifications.arrivals", "sqlalchemy"} <= loaded
    assert "apsw" not in loaded
    assert not [name for name in loaded if name.startswith("fieldpost.site.")]
