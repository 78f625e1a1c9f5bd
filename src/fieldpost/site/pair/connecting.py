"""Keeping the connection to the other node of a pair: node 0 listens, node 1 connects."""

from collections.abc import Callable

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import Denied, FieldpostError
from fieldpost.site.config.folder import Folder
from fieldpost.site.config.options import parse_address
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.pair.peer import PairListener, connect
from fieldpost.site.pair.session import PairSession

DIAL_EVERY_S = 1.0
LISTEN_AGAIN_S = 10.0

_log = structlog.stdlib.get_logger("fieldpost.site")


async def listen(folder: Folder, begin: Callable[[], PairSession], is_over: Callable[[], bool], clock: Clock) -> None:
    """Listen until the pair is over; an address that cannot be used is tried again."""
    host, port = parse_address(folder.pair.listen, "listen")
    while not is_over():
        listener = PairListener(PairFiles(folder.path).identity(), begin, clock)
        try:
            await listener.start(host, port)
        except FieldpostError as error:
            _log.warning("pair.not_served", code=error.code, error=error.message)
            await clock.sleep(LISTEN_AGAIN_S)
            continue
        try:
            while not is_over():
                await clock.sleep(DIAL_EVERY_S)
        finally:
            await listener.close()


async def dial(folder: Folder, begin: Callable[[], PairSession], is_over: Callable[[], bool], clock: Clock) -> None:
    """Connect until the pair is over, and again after each end of a connection; each reason is logged once."""
    host, port = parse_address(folder.pair.peer, "peer")
    failure: str | None = None
    while not is_over():
        try:
            connection = await connect(PairFiles(folder.path).identity(), host, port, begin(), clock)
            failure = None
            await connection.run()
        except FieldpostError as error:
            if error.code != failure and not is_over():
                level = _log.error if isinstance(error, Denied) else _log.warning
                level("pair.disconnected", code=error.code, error=error.message)
            failure = error.code
        await clock.sleep(DIAL_EVERY_S)
