"""Answers of providers, for the table tests of their classification."""

import json

from fieldpost.outbound.client import HttpAnswer


def answer(status: int, said: object = "") -> HttpAnswer:
    """An answer with this text, or this object as JSON."""
    body = said if isinstance(said, str) else json.dumps(said)
    return HttpAnswer(status, {}, body.encode(), is_whole=True)
