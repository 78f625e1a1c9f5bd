"""The conversation without the socket."""

from fieldpost.link.messages import ITEMS_MAX, ZLIB, Ack, Hello, Item, Refusal, Submit
from fieldpost.link.session import ANSWER_S, BYTES_MIN, FIRST_BYTES, IN_FLIGHT_MAX, PASS_S, LinkSession


def items(count: int) -> list[Item]:
    return [Item(f"id-{number}", "ops", "s", "b") for number in range(count)]


def send(session: LinkSession, count: int = 1, size: int = 100, at: float = 0.0) -> Submit:
    submit = session.submit(items(count))
    session.sent(submit, size, at)
    return submit


def ack(submit: Submit, credits: int = ITEMS_MAX) -> Ack:
    return Ack(submit.seq, (), credits)


def test_each_message_has_a_number_of_its_own() -> None:
    session = LinkSession()
    assert [send(session).seq for _ in range(3)] == [1, 2, 3]


def test_an_answer_ends_exactly_what_it_is_to() -> None:
    session = LinkSession()
    first, second = send(session), send(session)
    answered = session.answered(ack(second), 1.0)
    assert answered is not None
    assert answered.submit == second
    assert [sent.submit for sent in session.in_flight] == [first]


def test_an_answer_to_nothing_in_flight_is_ignored() -> None:
    session = LinkSession()
    submit = send(session)
    session.lost()
    assert session.answered(ack(submit), 1.0) is None
    assert session.answered(Refusal("link.invalid", "what?"), 1.0) is None


def test_what_had_no_answer_when_the_connection_ended_is_to_be_sent_again() -> None:
    session = LinkSession()
    first, second, third = send(session), send(session), send(session)
    session.answered(ack(second), 1.0)
    assert [lost.submit for lost in session.lost()] == [first, third]
    assert session.in_flight == ()


def test_credits_bound_what_may_be_sent_next() -> None:
    session = LinkSession()
    session.greeted(Hello(1, "x", credits=40))
    assert session.room().items == 40
    submit = send(session, count=15)
    assert session.room().items == 25
    session.answered(ack(submit, credits=7), 0.1)
    assert session.room().items == 7


def test_what_is_left_of_the_credits_is_not_dribbled_away_while_answers_are_to_come() -> None:
    session = LinkSession()
    session.greeted(Hello(1, "x", credits=40))
    submit = send(session, count=30)
    assert session.room().items == 0
    session.answered(ack(submit, credits=40), 0.1)
    assert session.room().items == 40


def test_with_many_credits_several_batches_travel_at_once_and_never_more_than_four() -> None:
    session = LinkSession()
    session.greeted(Hello(1, "x", credits=600))
    assert session.room().items == 300
    send(session, count=300)
    assert session.room().items == 300
    send(session, count=300)
    assert session.room().items == 0
    session = LinkSession()
    session.greeted(Hello(1, "x", credits=10**6))
    for _ in range(IN_FLIGHT_MAX):
        assert session.room().items == ITEMS_MAX
        submit = send(session, count=ITEMS_MAX)
    assert session.room().items == 0
    session.answered(ack(submit, credits=10**6), 0.1)
    assert session.room().items == ITEMS_MAX


def test_compression_is_for_lines_on_which_bytes_are_dear() -> None:
    session = LinkSession()
    assert not session.is_compression_worth(100_000), "central has not said that it understands it"
    session.greeted(Hello(1, "x", accepts=("brotli", ZLIB)))
    assert session.is_compression_worth(100_000)
    assert not session.is_compression_worth(200)
    session.answered(ack(send(session, size=100_000, at=0.0)), 1.0)
    assert session.is_compression_worth(100_000)
    session.answered(ack(send(session, size=100_000, at=2.0)), 2.01)
    assert not session.is_compression_worth(100_000), "10 MB/s"
    send(session)
    session.lost()
    assert session.is_compression_worth(100_000), "the line may have become another"
    session.greeted(Hello(1, "x"))
    assert not session.is_compression_worth(100_000), "an older central"


def test_a_batch_grows_by_what_it_holds_and_the_line_is_judged_by_what_travels() -> None:
    session = LinkSession()
    for at in range(20):
        submit = session.submit(items(1))
        session.sent(submit, session.room().bytes, at, wire_size=2000)
        session.answered(ack(submit), at + 0.5)
    assert session.room().bytes > 50 * FIRST_BYTES
    assert session.patience_s(100_000) >= ANSWER_S + 100_000 / 4000


def test_an_answer_is_waited_for_as_long_as_what_travels_before_it_needs() -> None:
    session = LinkSession()
    session.answered(ack(send(session, size=10_000, at=0.0)), 10.0)
    alone = session.patience_s(10_000)
    send(session, size=50_000, at=10.0)
    assert session.patience_s(10_000) >= alone + 50


def test_without_credits_one_item_may_still_ask() -> None:
    session = LinkSession()
    session.answered(ack(send(session), credits=0), 0.1)
    assert session.credits == 0
    assert session.room().items == 1


def test_a_batch_shrinks_to_what_passes_in_five_seconds() -> None:
    """A line of 1,000 bytes a second."""
    session = LinkSession()
    now = 0.0
    for _ in range(10):
        size = session.room().bytes
        submit = send(session, size=size, at=now)
        now += size / 1000
        session.answered(ack(submit), now)
    assert session.room().bytes / 1000 <= PASS_S


def test_a_batch_grows_while_the_line_is_quick() -> None:
    session = LinkSession()
    for _ in range(20):
        session.answered(ack(send(session, size=session.room().bytes, at=0.0)), 0.05)
    assert session.room().bytes > 50 * FIRST_BYTES


def test_a_small_batch_says_nothing_about_a_larger_one() -> None:
    session = LinkSession()
    before = session.room().bytes
    session.answered(ack(send(session, size=10, at=0.0)), 0.001)
    assert session.room().bytes == before


def test_a_lost_batch_is_followed_by_a_much_smaller_one_but_never_by_none() -> None:
    session = LinkSession()
    for _ in range(20):
        before = session.room().bytes
        send(session)
        session.lost()
        assert session.room().bytes == max(BYTES_MIN, before // 4)


def test_losing_an_idle_connection_says_nothing_about_the_line() -> None:
    session = LinkSession()
    before = session.room()
    session.lost()
    assert session.room() == before


def test_on_a_quick_line_a_dead_central_is_noticed_within_half_a_minute() -> None:
    session = LinkSession()
    session.answered(ack(send(session, size=100_000, at=0.0)), 0.1)
    assert session.patience_s(250_000) <= 30


def test_one_large_item_on_a_slow_line_is_waited_for() -> None:
    """256 KiB at 8 kbit/s take 262 s, and could never pass if the wait were shorter."""
    session = LinkSession()
    session.answered(ack(send(session, size=10_000, at=0.0)), 10.0)
    assert session.patience_s(262_144) > ANSWER_S + 262


def test_a_busy_central_does_not_make_the_line_look_slow() -> None:
    """Each answer takes six seconds, of which central had the message for nearly all."""
    session = LinkSession()
    session.greeted(Hello(1, "x", accepts=(ZLIB,)))
    for at in range(0, 100, 10):
        submit = send(session, size=session.room().bytes, at=at)
        session.answered(Ack(submit.seq, (), ITEMS_MAX, took_s=5.99), at + 6)
    assert session.room().bytes > 50 * FIRST_BYTES
    assert not session.is_compression_worth(100_000)
