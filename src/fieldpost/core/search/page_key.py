"""The position of a row in a list that is sorted newest first."""

from datetime import datetime

PageKey = tuple[datetime, str]
"""Time and id of the last row of a page; the next page starts after it."""
