"""The Chromium that the console's tests drive: named by TEST_CHROMIUM, else the first one found on PATH.

The headless shell is the same engine without the windows, menus and tabs around it, which cost more than the pages do.
"""

import os
import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    if named := os.environ.get("TEST_CHROMIUM"):
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)
