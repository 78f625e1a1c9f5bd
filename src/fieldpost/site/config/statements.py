"""Parses a defined SQL statement with parameters written `:name`, whose values are never put into the text.

The parser knows just enough SQL to distinguish a parameter from quoted strings and names, comments, casts (`::`) and
dollar quotes. The result is the same text with numbered placeholders (`$1` for PostgreSQL, `?1` for SQLite), so that a
name may occur several times. It also checks that the text is a write: a single statement that changes rows and can
neither end its transaction nor affect anything outside the database.
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
"""The parameter that Fieldpost sets in every statement: the same at each attempt of one write."""

_BEGINNINGS = {
    "sqlite": ("INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"),
    "postgresql": ("INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "CALL", "SELECT"),
}


@dataclass(frozen=True, slots=True)
class DefinedStatement:
    """One statement, ready for the driver of its dialect."""

    sql: str
    """With numbered placeholders instead of names."""
    parameters: tuple[str, ...]
    """The name for each placeholder, in order."""

    @property
    def given(self) -> frozenset[str]:
        """The parameters that the caller must pass: all except the call's id."""
        return frozenset(self.parameters) - {CALL_ID}


def parse_statement(text: object, dialect: Dialect, field: str = "statement") -> DefinedStatement:
    """The parsed statement. Raises InvalidInput with the violated rule."""
    if type(text) is not str:
        raise _refused(field, "must be a string")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _refused(field, "must not contain a lone surrogate") from None
    if "\x00" in text:
        raise _refused(field, "must not contain a NUL character")
    if size > STATEMENT_BYTES_MAX:
        raise _refused(field, f"must be at most {STATEMENT_BYTES_MAX} bytes, got {size}")
    return _parse(text, dialect, field)


@lru_cache(maxsize=256)
def _parse(text: str, dialect: Dialect, field: str) -> DefinedStatement:
    reader = _Reader(text, dialect, field)
    reader.read()
    return DefinedStatement("".join(reader.pieces), tuple(reader.names))


class _Reader:
    """Reads a statement once, token by token."""

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
                # A final semicolon is superfluous, and some drivers reject it.
                is_ended = True
                continue
            if not is_begun and not is_blank:
                is_begun = True
                if token.upper() not in self._beginnings:
                    raise _refused(self._field, f"must start with one of {', '.join(self._beginnings)}")
            self.pieces.append(self._placed(token))
        if not is_begun:
            raise _refused(self._field, "is empty")

    def _placed(self, token: str) -> str:
        """The token for the driver: a parameter becomes a placeholder."""
        if token[0] == ":" and len(token) > 1 and token[1] not in ":=":
            name = token[1:]
            if not name.isascii():
                raise _refused(
                    self._field, f"has the parameter :{name[:64]}; a name can have only letters, digits and _"
                )
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
            # In E'…' a backslash escapes the quote after it.
            if self._is_postgresql and word in ("e", "E") and text.startswith("'", match.end()):
                return self._escaped_end(match.end())
            return match.end()
        return at + 1

    def _quoted_end(self, at: int, quote: str) -> int:
        """The position after the closing quote. A doubled quote reads as two adjacent strings, which is equivalent."""
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


# A word includes its dollar signs, so that they do not open a quote; a cast is one token and not a parameter.
_TOKEN = re.compile(r"\s+|::|:=|:[^\W\d]\w*|[^\W\d][\w$]*|\d[\w.]*|\$\w*")
_DOLLAR_QUOTE = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_ESCAPED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
