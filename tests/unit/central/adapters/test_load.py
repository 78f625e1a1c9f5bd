"""Adapters are found by entry point, and a broken one harms nobody else."""

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fieldpost.central import adapters as adapters_package
from fieldpost.central.adapters import load
from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.outbound.outbound import Outbound
from support.adapter_packages import ADAPTER, install_adapters

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.syspath_prepend(tmp_path)
    return partial(install_adapters, tmp_path)


@pytest.mark.req("ADP-01", "ADP-15")
def test_our_own_and_third_parties_adapters_are_found_by_their_type(install: Install) -> None:
    install("acme_pager", ADAPTER.format(name="Pager", type="pager"), "pager = acme_pager:Pager")
    adapters = load()
    assert isinstance(adapters["email"], EmailAdapter)
    assert adapters["pager"].type == "pager"


@pytest.mark.req("ADP-03", "ADP-16")
async def test_adapters_that_ask_for_outbound_share_one_instance(install: Install) -> None:
    asking = (
        ADAPTER.format(name="Pager", type="pager") + "    def __init__(self, *, outbound): self.outbound = outbound\n"
    )
    install("acme_asking", asking, "pager = acme_asking:Pager")
    outbound = Outbound()
    adapters = load(outbound)
    assert adapters["pager"].outbound is outbound  # type: ignore[attr-defined]
    assert adapters["email"]._outbound is outbound  # type: ignore[attr-defined]
    # It belongs to whoever made it: one adapter that closes does not take it away from the others.
    pool = outbound.admin_http._pool
    connection = pool.make(("https", "example.org", 443))
    await adapters["email"].close()
    assert connection in pool._open
    await outbound.close()
    assert not pool._open


@pytest.mark.req("ADP-14")
def test_adapters_import_neither_store_nor_dispatcher_nor_console() -> None:
    """Definitions are operate's job, adapters provide the means; neither store nor dispatch is seen from here."""
    folder = Path(adapters_package.__file__).parent
    imported = {
        name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        if name.startswith("fieldpost.")
    }
    means = ("core", "clock", "child_process", "outbound", "system_error", "central.adapters")
    backend = tuple(f"fieldpost.{name}" for name in means)
    assert imported
    assert [name for name in imported if not name.startswith(backend)] == []


BROKEN = {
    "import_fails": "import no_such_module_anywhere",
    "no_type": "class Pager: pass",
    "type_is_not_its_name": ADAPTER.format(name="Pager", type="other"),
    "no_close": ADAPTER.format(name="Pager", type="pager").replace("async def close", "async def shut"),
    "no_deadline": ADAPTER.format(name="Pager", type="pager").replace("30.0", "None"),
    "secrets_not_declared": ADAPTER.format(name="Pager", type="pager").replace("secrets", "settings"),
    "no_such_class": ADAPTER.format(name="Other", type="pager"),
    "cannot_be_made": "class Pager:\n    def __init__(self): 1 / 0",
    "no_python": "this is no python",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_third_party_adapter_is_logged_and_left_out(install: Install, how: str) -> None:
    install(f"acme_{how}", BROKEN[how], f"pager = acme_{how}:Pager")
    with capture_logs() as lines:
        adapters = load()
    assert "email" in adapters
    assert "pager" not in adapters
    assert [(line["event"], line["entry_point"]) for line in lines] == [("adapter.left_out", "pager")]


@pytest.mark.req("ADP-01")
def test_built_in_adapter_wins_over_another_of_its_type(install: Install) -> None:
    install("acme_mail", ADAPTER.format(name="Mail", type="email"), "email = acme_mail:Mail")
    with capture_logs() as lines:
        assert isinstance(load()["email"], EmailAdapter)
    assert [line["reason"] for line in lines] == ["duplicate type"]
