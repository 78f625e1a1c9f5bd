"""An address that accepts no connection and answers none."""

import socket
from contextlib import ExitStack


class BlackHole:
    """An address that swallows connections: its queue is full and nobody accepts, so the kernel drops what comes."""

    def __init__(self, host: str, port: int) -> None:
        self._stack = ExitStack()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = self._stack.enter_context(socket.socket(family))
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            filler = self._stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex((host, port))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._stack.close()
