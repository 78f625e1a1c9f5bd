"""The link's session against a model: nothing sent is ever forgotten, and nothing is answered twice."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fieldpost.link.messages import ITEMS_MAX, Ack, Hello, Item, Refusal
from fieldpost.link.session import BYTES_MAX, BYTES_MIN, LinkSession


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.session = LinkSession()
        self.now = 0.0
        self.unanswered: list[int] = []
        self.ended: list[int] = []

    @rule(count=st.integers(1, 5), size=st.integers(1, BYTES_MAX), took=st.floats(0, 60))
    def send(self, count: int, size: int, took: float) -> None:
        submit = self.session.submit([Item("i", "l", "s", "b")] * count)
        assert submit.seq not in self.unanswered + self.ended
        self.session.sent(submit, size, self.now)
        self.unanswered.append(submit.seq)
        self.now += took

    @rule(data=st.data(), credits=st.integers(-5, 1000), is_refused=st.booleans())
    def answer(self, data: st.DataObject, credits: int, is_refused: bool) -> None:
        seq = data.draw(st.sampled_from([*self.unanswered, *self.ended, 10**6]))
        answer = Refusal("store.busy", "not now", seq) if is_refused else Ack(seq, (), credits)
        sent = self.session.answered(answer, self.now)
        if seq in self.unanswered:
            assert sent is not None
            assert sent.submit.seq == seq
            self.unanswered.remove(seq)
            self.ended.append(seq)
        else:
            assert sent is None

    @rule(credits=st.integers(0, 1000))
    def reconnect(self, credits: int) -> None:
        assert [lost.submit.seq for lost in self.session.lost()] == self.unanswered
        self.ended += self.unanswered
        self.unanswered = []
        self.session.greeted(Hello(1, "x", credits))

    @invariant()
    def what_is_in_flight_is_what_has_no_answer(self) -> None:
        assert [sent.submit.seq for sent in self.session.in_flight] == self.unanswered

    @invariant()
    def there_is_always_room_for_one_or_an_answer_to_come_and_never_room_for_more_than_the_link_takes(self) -> None:
        room = self.session.room()
        assert (0 if self.unanswered else 1) <= room.items <= ITEMS_MAX
        in_flight = sum(len(sent.submit.items) for sent in self.session.in_flight)
        assert room.items <= max(1, self.session.credits - in_flight)
        assert BYTES_MIN <= room.bytes <= BYTES_MAX
        assert self.session.patience_s(room.bytes) > 0


TestSession = SessionMachine.TestCase
