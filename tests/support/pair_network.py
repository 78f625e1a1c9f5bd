"""Two machines of a site as network namespaces: linked to each other, and each to central and to a target.

A link is cut by taking it down: packets vanish, and nobody gets an answer. The links to the target are never cut.
"""

import os
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

from support.need import cannot_have, need

LinkName = Literal["pair", "central-0", "central-1"]
LINKS: tuple[LinkName, ...] = ("pair", "central-0", "central-1")


class PairNetwork:
    """Namespaces of one test; the addresses are those of one process of the test run."""

    def __init__(self) -> None:
        need("namespaces")
        self._mark = f"fp{os.getpid() % 60_000}"
        self._net = f"10.{91 + os.getpid() % 60}.{os.getpid() // 60 % 250}"
        self.namespaces = f"{self._mark}a", f"{self._mark}b"

    def __enter__(self) -> Self:
        try:
            for name in self.namespaces:
                _ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            self.__exit__(None, None, None)
            cannot_have("namespaces", f"ip netns add: {error.stderr.strip()}")
        first, second = self.namespaces
        self._join(first, f"{self._mark}p0", self.node_address(0), second, f"{self._mark}p1", self.node_address(1))
        for node, name in enumerate(self.namespaces):
            _ip("-n", name, "link", "set", "lo", "up")
            for kind, here, there in (("c", 8, 9), ("t", 16, 17)):
                addresses = f"{self._net}.{here + 4 * node + 1}", f"{self._net}.{there + 4 * node + 1}"
                self._join(
                    name, f"{self._mark}{kind}{node}", addresses[0], "", f"{self._mark}{kind}r{node}", addresses[1]
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node, name in enumerate(self.namespaces):
            # The veth pairs end with the namespace, at a time of the kernel's choice; these ends at once.
            for end in ("c", "t"):
                subprocess.run(["ip", "link", "del", f"{self._mark}{end}r{node}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def under(self, node: int) -> Sequence[str]:
        """The command that runs a program on this machine."""
        return ["ip", "netns", "exec", self.namespaces[node]]

    def node_address(self, node: int) -> str:
        return f"{self._net}.{1 + node}"

    def central_address(self, node: int) -> str:
        """The address of central for this machine."""
        return f"{self._net}.{10 + 4 * node}"

    def target_address(self, node: int) -> str:
        return f"{self._net}.{18 + 4 * node}"

    def cut(self, *links: LinkName) -> None:
        for link in links:
            self._set(link, "down")

    def heal(self, *links: LinkName) -> None:
        for link in links or LINKS:
            self._set(link, "up")

    def _set(self, link: LinkName, state: str) -> None:
        node = 0 if link == "pair" else int(link[-1])
        device = f"{self._mark}p0" if link == "pair" else f"{self._mark}c{node}"
        _ip("-n", self.namespaces[node], "link", "set", device, state)

    def _join(self, one: str, device: str, address: str, other: str, far: str, far_address: str) -> None:
        ends = ["netns", other] if other else []
        _ip("link", "add", device, "netns", one, "type", "veth", "peer", "name", far, *ends)
        for space, name, own in ((one, device, address), (other, far, far_address)):
            inside = ["-n", space] if space else []
            _ip(*inside, "address", "add", f"{own}/30", "dev", name)
            _ip(*inside, "link", "set", name, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
