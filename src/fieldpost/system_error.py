"""The reasons that errors of the operating system and of libraries give."""

import os


def reason_of(error: BaseException) -> str:
    """The reason that a library's error gives. One of the operating system has its standard text, `Connection refused`:
    event loops write `Connect call failed`, with the address once more."""
    # Subclasses of OSError in `ssl` and `socket` have other numbers.
    if isinstance(error, OSError) and type(error).__module__ == "builtins" and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
