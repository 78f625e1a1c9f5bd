"""The console's files: vendored ones are what the manifest says, and browsers keep them until they change."""

import json
from hashlib import sha512
from pathlib import Path

import pytest

from fieldpost.front.console.kit.static_files import FOLDER, StaticFiles


@pytest.mark.parametrize("vendor", [FOLDER / "vendor", Path(__file__).parents[2] / "support" / "vendor"])
def test_every_vendored_file_is_what_the_manifest_says_and_has_its_licence(vendor: Path) -> None:
    manifest = json.loads((vendor / "manifest.json").read_text())
    assert sorted(path.name for path in vendor.iterdir() if path.suffix in (".js", ".css")) == sorted(manifest)
    for name, entry in manifest.items():
        assert sha512((vendor / name).read_bytes()).hexdigest() == entry["sha512"]
        assert (vendor / entry["license_file"]).read_text().strip()


def test_file_requested_by_version_is_cached_and_any_other_is_revalidated() -> None:
    files = StaticFiles()
    name, _, version = files.url("console.css").removeprefix("/static/").partition("?v=")
    known, unknown = files.response(name, version), files.response(name, "old")
    assert known is not None
    assert unknown is not None
    assert "immutable" in known.headers["cache-control"]
    assert unknown.headers["cache-control"] == "no-cache"
    assert known.headers["content-type"] == "text/css; charset=utf-8"


def test_internal_files_are_not_served() -> None:
    files = StaticFiles()
    for name in ("vendor/manifest.json", "vendor/htmx.LICENSE", "../pages.py", "/etc/passwd", ""):
        assert files.response(name, None) is None
