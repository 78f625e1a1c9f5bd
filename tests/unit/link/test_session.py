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


def test_each_message_has_a_unique_number() -> None:
    session = LinkSession()
    assert [send(session).seq for _ in range(3)] == [1, 2, 3]


def test_answer_completes_exactly_its_message() -> None:
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


def test_unanswered_messages_of_an_ended_connection_are_sent_again() -> None:
    session = LinkSession()
    first, second, third = send(session), send(session), send(session)
    session.answered(ack(second), 1.0)
    assert [lost.submit for lost in session.lost()] == [first, third]
    assert session.in_flight == ()


def test_credits_limit_the_next_message() -> None:
    session = LinkSession()
    session.greeted(Hello(1, "x", credits=40))
    assert session.room().items == 40
    submit = send(session, count=15)
    assert session.room().items == 25
    session.answered(ack(submit, credits=7), 0.1)
    assert session.room().items == 7


def test_remaining_credits_are_not_spent_on_small_batches_while_answers_are_pending() -> None:
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


def test_compression_is_used_on_slow_lines_only() -> None:
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


def test_batch_size_counts_plain_bytes_and_line_speed_compressed_ones() -> None:
    session = LinkSession()
    for at in range(20):
        submit = session.submit(items(1))
        session.sent(submit, session.room().bytes, at, wire_size=2000)
        session.answered(ack(submit), at + 0.5)
    assert session.room().bytes > 50 * FIRST_BYTES
    assert session.patience_s(100_000) >= ANSWER_S + 100_000 / 4000


def test_answer_timeout_includes_the_messages_sent_before() -> None:
    session = LinkSession()
    session.answered(ack(send(session, size=10_000, at=0.0)), 10.0)
    alone = session.patience_s(10_000)
    send(session, size=50_000, at=10.0)
    assert session.patience_s(10_000) >= alone + 50


def test_one_item_may_be_sent_without_credits() -> None:
    session = LinkSession()
    session.answered(ack(send(session), credits=0), 0.1)
    assert session.credits == 0
    assert session.room().items == 1


def test_batch_shrinks_to_five_seconds_of_the_line() -> None:
    """A line of 1,000 bytes a second."""
    session = LinkSession()
    now = 0.0
    for _ in range(10):
        size = session.room().bytes
        submit = send(session, size=size, at=now)
        now += size / 1000
        session.answered(ack(submit), now)
    assert session.room().bytes / 1000 <= PASS_S


def test_batch_grows_while_the_line_is_fast() -> None:
    session = LinkSession()
    for _ in range(20):
        session.answered(ack(send(session, size=session.room().bytes, at=0.0)), 0.05)
    assert session.room().bytes > 50 * FIRST_BYTES


def test_small_batch_does_not_change_the_batch_size() -> None:
    session = LinkSession()
    before = session.room().bytes
    session.answered(ack(send(session, size=10, at=0.0)), 0.001)
    assert session.room().bytes == before


def test_lost_batch_is_followed_by_a_much_smaller_one_of_at_least_one_item() -> None:
    session = LinkSession()
    for _ in range(20):
        before = session.room().bytes
        send(session)
        session.lost()
        assert session.room().bytes == max(BYTES_MIN, before // 4)


def test_loss_of_an_idle_connection_does_not_change_the_batch_size() -> None:
    session = LinkSession()
    before = session.room()
    session.lost()
    assert session.room() == before


def test_dead_central_is_noticed_within_half_a_minute_on_a_fast_line() -> None:
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
