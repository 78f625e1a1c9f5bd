"""A defined SQL statement: its parameters are written `:name` and given by name alone, never put into the text.

The reader knows just enough SQL to tell a parameter from what looks like one: quoted texts and names, comments, casts
(`::`), dollar quotes. What it gives back has the same text with numbered places (`$1` for PostgreSQL, `?1` for SQLite),
so that one name may stand in several places. It also holds a write to what a write is: one statement, of a kind that
changes rows and can neither end the transaction it runs in nor touch anything beside the database.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fieldpost.core.errors import InvalidInput

Dialect = Literal["sqlite", "postgresql"]

STATEMENT_BYTES_MAX = 64 * 1024
PARAMETERS_MAX = 1000
CALL_ID = "call_id"
"""The parameter that every statement may use without being given it: the same at each attempt of one write."""

_BEGINNINGS = {
    "sqlite": ("INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"),
    "postgresql": ("INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "CALL", "SELECT"),
}


@dataclass(frozen=True, slots=True)
class DefinedStatement:
    """One statement, ready for the driver of its dialect."""

    sql: str
    """With numbered places instead of names."""
    parameters: tuple[str, ...]
    """The name that belongs to each place, in their order."""

    @property
    def given(self) -> frozenset[str]:
        """What a caller has to give: all but the operation's id."""
        return frozenset(self.parameters) - {CALL_ID}


def parse_statement(text: object, dialect: Dialect, field: str = "statement") -> DefinedStatement:
    """The statement, or InvalidInput naming the rule it breaks."""
    if type(text) is not str:
        raise _refused(field, "must be a text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _refused(field, "must not contain a lone surrogate") from None
    if "\x00" in text:
        raise _refused(field, "must not contain a NUL character")
    if size > STATEMENT_BYTES_MAX:
        raise _refused(field, f"has {size} bytes, at most {STATEMENT_BYTES_MAX}")
    return _parse(text, dialect, field)


@lru_cache(maxsize=256)
def _parse(text: str, dialect: Dialect, field: str) -> DefinedStatement:
    reader = _Reader(text, dialect, field)
    reader.read()
    return DefinedStatement("".join(reader.pieces), tuple(reader.names))


class _Reader:
    """Goes through a statement once, token by token."""

    def __init__(self, text: str, dialect: Dialect, field: str) -> None:
        self._text = text
        self._is_postgresql = dialect == "postgresql"
        self._beginnings = _BEGINNINGS[dialect]
        self._field = field
        self.pieces: list[str] = []
        self.names: list[str] = []

    def read(self) -> None:
        is_begun = is_ended = False
        at = 0
        while at < len(self._text):
            end = self._token_end(at)
            token = self._text[at:end]
            at = end
            is_blank = token.isspace() or token.startswith(("--", "/*"))
            if is_ended and not is_blank and token != ";":
                raise _refused(self._field, "must be one statement; there is more after the semicolon")
            if token == ";":
                # The semicolon at the end says nothing, and some drivers refuse it.
                is_ended = True
                continue
            if not is_begun and not is_blank:
                is_begun = True
                if token.upper() not in self._beginnings:
                    raise _refused(self._field, f"must begin with one of {', '.join(self._beginnings)}")
            self.pieces.append(self._placed(token))
        if not is_begun:
            raise _refused(self._field, "is empty")

    def _placed(self, token: str) -> str:
        """The token as the driver is given it."""
        if token[0] == ":" and len(token) > 1 and token[1] not in ":=":
            name = token[1:]
            if not name.isascii():
                raise _refused(self._field, f"has the parameter :{name[:64]}; a name is of letters, digits and _")
            if name not in self.names:
                self.names.append(name)
            if len(self.names) > PARAMETERS_MAX:
                raise _refused(self._field, f"has more than {PARAMETERS_MAX} parameters")
            return f"{'$' if self._is_postgresql else '?'}{self.names.index(name) + 1}"
        if (token[0] == "$" and (not self._is_postgresql or token[1:].isdigit())) or (
            not self._is_postgresql and (token[0] in "?@" or token == ":")
        ):
            raise _refused(self._field, f"has {token[:64]}; parameters are written :name")
        return token

    def _token_end(self, at: int) -> int:
        text = self._text
        character = text[at]
        if character == "'":
            return self._quoted_end(at, "'")
        if character == '"' or (character == "`" and not self._is_postgresql):
            return self._quoted_end(at, character)
        if character == "[" and not self._is_postgresql:
            return self._found_end(at, "]", "a name in brackets")
        if text.startswith("--", at):
            newline = text.find("\n", at)
            return len(text) if newline < 0 else newline
        if text.startswith("/*", at):
            return self._comment_end(at)
        if character == "$" and self._is_postgresql and (opening := _DOLLAR_QUOTE.match(text, at)):
            return self._found_end(opening.end(), opening.group(), "a dollar quote")
        if match := _TOKEN.match(text, at):
            word = match.group()
            # In E'…' a backslash hides the quote after it.
            if self._is_postgresql and word in ("e", "E") and text.startswith("'", match.end()):
                return self._escaped_end(match.end())
            return match.end()
        return at + 1

    def _quoted_end(self, at: int, quote: str) -> int:
        """Behind the closing quote; a doubled one is part of the text, and reads as two texts side by side."""
        return self._found_end(at + 1, quote, "a quote")

    def _escaped_end(self, at: int) -> int:
        match = _ESCAPED.match(self._text, at)
        if match is None:
            raise _refused(self._field, "has a quote that is not closed")
        return match.end()

    def _comment_end(self, at: int) -> int:
        depth = 0
        for match in _COMMENT_EDGE.finditer(self._text, at):
            if match.group() == "*/":
                depth -= 1
            elif self._is_postgresql or depth == 0:
                # PostgreSQL's comments nest, SQLite's do not.
                depth += 1
            if depth == 0:
                return match.end()
        raise _refused(self._field, "has a comment that is not closed")

    def _found_end(self, at: int, closing: str, what: str) -> int:
        end = self._text.find(closing, at)
        if end < 0:
            raise _refused(self._field, f"has {what} that is not closed")
        return end + len(closing)


def _refused(field: str, rule: str) -> InvalidInput:
    return InvalidInput("statement.invalid", f"{field} {rule}", field=field)


# A word keeps the dollar signs within it, so that none of them opens a quote; a cast is one token, hence no parameter.
_TOKEN = re.compile(r"\s+|::|:=|:[^\W\d]\w*|[^\W\d][\w$]*|\d[\w.]*|\$\w*")
_DOLLAR_QUOTE = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_ESCAPED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
