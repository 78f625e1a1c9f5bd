"""Packages of third parties with adapters, laid out as pip would."""

from pathlib import Path

ADAPTER = """
class {name}:
    type = "{type}"
    deadline_s = 30.0
    secrets = frozenset()
    def check_settings(self, settings): return dict(settings)
    def check_target(self, address): return address
    def target_key(self, address): return address
    async def deliver(self, envelope): ...
    async def close(self): ...
"""


def install_adapters(folder: Path, module: str, source: str, *entries: str) -> None:
    """Install a package with one module and these adapter entry points into a folder of `sys.path`."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fieldpost.adapters]\n" + "\n".join(entries) + "\n")
