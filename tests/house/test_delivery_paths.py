"""Only `core/delivery/routing.py` derives a channel, a breaker key or a retry policy from a list."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROUTING = "core/delivery/routing.py"
OF_A_NAMED_CHANNEL = {"central/operate/rerouting.py", "central/watch/channels.py", "front/console/channels.py"}
"""Modules that make the breaker key of a channel: the one that the caller named, or of each channel there is."""
BREAKER_KEY = re.compile(r"channel:\Z")
LISTS_WITH_CHANNELS = re.compile(
    r"(?=.*\b(from|join|update)\s+lists\b)(?=.*\b(from|join|update)\s+(channels|breakers)\b)", re.DOTALL | re.IGNORECASE
)


def derivations(source: str, path: str = "") -> Iterator[str]:
    """The places where this source derives part of a delivery path by itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="channel_key") | ast.Attribute(attr="channel_key"), args=[made_from]):
                if path not in OF_A_NAMED_CHANNEL or "list" in ast.unparse(made_from):
                    yield f"makes a breaker key: {ast.unparse(node)}"
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), _, *_]) if BREAKER_KEY.match(start):
                if path != "core/delivery/breaker.py":
                    yield f"spells out a breaker key: {ast.unparse(node)}"
            case ast.BinOp(left=ast.Constant(value=str(start))) if BREAKER_KEY.match(start):
                yield f"spells out a breaker key: {ast.unparse(node)}"
            case ast.Subscript(value=ast.Attribute(attr="channels"), slice=wanted):
                if ".channel_name" in ast.unparse(wanted):
                    yield f"looks up the channel of a list: {ast.unparse(node)}"
            case ast.Call(func=ast.Attribute(attr="get", value=ast.Attribute(attr="channels")), args=[wanted, *_]):
                if ".channel_name" in ast.unparse(wanted):
                    yield f"looks up the channel of a list: {ast.unparse(node)}"
            case ast.BoolOp(op=ast.Or(), values=values) if are_policies(values):
                yield f"chooses a retry policy: {ast.unparse(node)}"
            case ast.IfExp(body=one, orelse=other) if are_policies([one, other]):
                yield f"chooses a retry policy: {ast.unparse(node)}"
            case ast.Constant(value=str(sql)) if LISTS_WITH_CHANNELS.match(sql):
                yield f"joins lists with channels or breakers: {sql.strip()[:60]}"


def are_policies(values: Sequence[ast.expr]) -> bool:
    """Whether a policy is chosen here: that of one thing, else that of another."""
    found = [ast.unparse(value) for value in values]
    return found[0].endswith(".retry") and any(
        re.search(r"\.retry\b|channel_retry|Fixed\(|Policy", text) for text in found[1:]
    )


@pytest.mark.req("DEC-44")
def test_no_module_but_routing_derives_a_channel_breaker_key_or_retry_policy_from_a_list(project: Path) -> None:
    src = project / "src/fieldpost"
    found = {}
    for path in src.rglob("*.py"):
        name = path.relative_to(src).as_posix()
        if places := list(derivations(path.read_text(), name)):
            found[name] = places
    assert len(found.pop(ROUTING)) >= 4, "the rule finds what routing itself does"
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "channel_key(directory.lists[name].channel_name)",
        "breaker.channel_key(found.name)",
        "f'channel:{found.channel_name}'",
        "'channel:' + channel.name",
        "directory.channels[one.channel_name]",
        "directory.channels.get(directory.lists[n.list_name].channel_name)",
        "policy = found.retry or channel_retry(channel)[0]",
        "policy = one.retry if one.retry else channel.retry",
        "'select c.retry from lists l join channels c on c.channel_name = l.channel_name'",
        "f'select b.state from notifications n join lists using (list_name) join breakers b on {fits}'",
    ],
)
def test_a_planted_derivation_is_found(planted: str) -> None:
    assert list(derivations(planted))
