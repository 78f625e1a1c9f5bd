from typing import cast

import pytest

from fieldpost.testing.mail.rules import MailRule, MailRules, Per
from fieldpost.testing.mail.script import MailEvent, ScriptedReply, SmtpVerb


def rcpt(address: str, transaction: int = 1, connection: int = 1) -> MailEvent:
    return MailEvent("rcpt", connection, transaction, sender="pump@plant.example", address=address)


def dot(message_id: str, *recipients: str) -> MailEvent:
    raw = f"Message-ID: {message_id}\r\n\r\n".encode()
    return MailEvent("dot", 1, 1, sender="pump@plant.example", recipients=recipients, raw=raw)


def laid(*rules: MailRule) -> MailRules:
    book = MailRules()
    for rule in rules:
        book.add(rule)
    return book


def codes(book: MailRules, *moments: MailEvent) -> list[int | None]:
    return [act.reply.code if (act := book.reaction(moment)) and act.reply else None for moment in moments]


def test_server_without_rules_behaves_normally() -> None:
    assert MailRules().reaction(rcpt("a@x.example")) is None


def test_rule_without_an_action_does_nothing() -> None:
    assert laid(MailRule("rcpt").times(1)).reaction(rcpt("a@x.example")) is None


def test_consecutive_rules_form_a_sequence() -> None:
    book = laid(MailRule("rcpt").reply(451).times(2), MailRule("rcpt").reply(550).times(1))
    assert codes(book, *[rcpt("a@x.example")] * 4) == [451, 451, 550, None]


def test_narrow_rule_before_a_wider_one_is_an_exception() -> None:
    book = laid(MailRule("rcpt", "a@x.example").accept(), MailRule("rcpt").reply(550))
    assert codes(book, rcpt("a@x.example"), rcpt("b@x.example")) == [None, 550]


def test_uses_are_counted_separately_per_address() -> None:
    book = laid(MailRule("rcpt").reply(451).times(1, per="address"))
    a, b = rcpt("a@x.example"), rcpt("b@x.example")
    assert codes(book, a, b, rcpt("A@X.example"), b) == [451, 451, None, None]


def test_uses_are_counted_separately_per_message() -> None:
    book = laid(MailRule("dot").reply(451).times(2, per="message"))
    assert codes(book, *[dot("<1@x>"), dot("<2@x>")] * 3) == [451, 451, 451, 451, None, None]


def test_first_use_in_each_transaction_can_be_exempt() -> None:
    book = laid(MailRule("rcpt").after(2, per="transaction").reply(452))
    moments = [rcpt(f"{n}@x.example", transaction=t) for t in (1, 2) for n in range(3)]
    assert codes(book, *moments) == [None, None, 452, None, None, 452]


def test_uses_are_counted_separately_per_connection() -> None:
    book = laid(MailRule("rcpt").reply(421).times(1, per="connection"))
    moments = [rcpt("a@x.example", connection=c) for c in (1, 1, 2, 2)]
    assert codes(book, *moments) == [421, None, 421, None]


def test_a_rule_for_an_address_matches_any_recipient_at_dot() -> None:
    book = laid(MailRule("dot", "B@x.example").reply(554))
    assert codes(book, dot("<1@x>", "a@x.example"), dot("<2@x>", "a@x.example", "b@X.example")) == [None, 554]


def test_address_can_be_a_predicate() -> None:
    book = laid(MailRule("rcpt", lambda address: address.endswith("@x.example")).reply(550))
    assert codes(book, rcpt("a@x.example"), rcpt("a@y.example")) == [550, None]


def test_rule_can_have_any_condition() -> None:
    rule = MailRule("rcpt", when=lambda moment: moment.connection == 2).reply(450)
    assert codes(laid(rule), rcpt("a@x.example"), rcpt("a@x.example", connection=2)) == [None, 450]
    assert rule.hits == 1


def test_event_that_does_not_match_uses_up_no_turn() -> None:
    book = laid(MailRule("rcpt", "b@x.example").reply(450).times(1))
    assert codes(book, rcpt("a@x.example"), rcpt("b@x.example"), rcpt("b@x.example")) == [None, 450, None]


def test_withdrawn_rule_no_longer_applies() -> None:
    rule = MailRule("rcpt").reply(450)
    book = laid(rule, MailRule("rcpt").reply(550))
    rule.withdraw()
    assert codes(book, rcpt("a@x.example")) == [550]
    book.withdraw_all()
    assert codes(book, rcpt("a@x.example")) == [None]


def test_counting_per_message_uses_little_memory_over_a_long_run() -> None:
    rule = MailRule("dot").reply(451).times(1, per="message")
    book = laid(rule)
    for number in range(10_001):
        book.reaction(dot(f"<{number}@x>"))
    assert rule.hits == 10_001
    # The oldest is forgotten and is new again; the newest is not.
    assert codes(book, dot("<10000@x>"), dot("<0@x>")) == [None, 451]


@pytest.mark.parametrize(
    ("verb", "per"), [("ehlo", "address"), ("dot", "address"), ("rcpt", "message"), ("quit", "transaction")]
)
def test_uses_cannot_be_counted_by_a_value_unknown_to_the_verb(verb: SmtpVerb, per: Per) -> None:
    with pytest.raises(ValueError, match=f"cannot be counted per {per}"):
        MailRule(verb).times(1, per=per)


def test_rule_that_could_never_match_is_rejected() -> None:
    with pytest.raises(ValueError, match="no verb 'expn'"):
        MailRule(cast(SmtpVerb, "expn"))
    with pytest.raises(ValueError, match="'ehlo' has no address"):
        MailRule("ehlo", "a@x.example")
    with pytest.raises(ValueError, match="needs the verb 'dot'"):
        MailRule("rcpt").keep_mail()
    with pytest.raises(ValueError, match="between 200 and 599"):
        MailRule("rcpt").reply(199)


def test_multiline_reply_is_sent_as_one() -> None:
    assert bytes(ScriptedReply(250, "mail.example\nSIZE 10")) == b"250-mail.example\r\n250 SIZE 10\r\n"
