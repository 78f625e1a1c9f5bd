"""Loopback ports for tests, none of those that the system hands out by itself: the next server of another test, or even
a connection that is made meanwhile, could get one of these."""

import random
import socket


def closed_port() -> int:
    """One on which nobody listens, nor will."""
    return _port(10_000, 12_000)


def free_port() -> int:
    """One to listen on later, or to come back to. None of the closed ones: a test that runs beside relies on those."""
    return _port(12_000, 30_000)


def _port(first: int, end: int) -> int:
    while True:
        port = random.SystemRandom().randrange(first, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
