"""What scripts call: `site.notify.to("operators").send(subject, body)` and `site.notify.status(id)`.

`send` checks, writes the buffer and returns; it never touches the network and needs no agent. The record of a
notification that has left the site is central's, so `status` asks there, and says so when it cannot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

import msgspec

from fieldpost.clock import Clock
from fieldpost.core.errors import Denied, NotFound, Unavailable
from fieldpost.core.ids import NotificationId, parse_notification_id
from fieldpost.core.sites.message import Category, RejectedMessage
from fieldpost.core.text import check_body, check_list_name, check_subject
from fieldpost.core.times import from_text, microseconds_to_text, to_microseconds
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Item, StatusAnswer
from fieldpost.link.status import ask_status
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.fresh_ids import fresh_id
from fieldpost.site.buffer.keys import key_for
from fieldpost.site.provenance import labels_of

StatusWord = Literal["forwarding", "rejected", "unknown", "pending", "retrying", "delivered", "parked", "discarded"]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class NotificationStatus:
    """Where a notification stands.

    `forwarding`: still in this site's buffer. `rejected`: central refused it for good; it lies in this site's rejected
    box. `unknown`: neither this site nor central has the id. The others are central's: `pending` (waits for its first
    attempt), `retrying`, `delivered`, `parked` (waits for a person), `discarded` (by a person).
    """

    notification_id: NotificationId
    status: StatusWord
    retry_count: int = 0
    """How often forwarding, or at central this cycle's delivery, was tried and failed."""
    last_error: str | None = None
    enqueued_at: datetime | None = None
    """When the script called send, by the site's clock."""
    delivered_at: datetime | None = None
    next_attempt_at: datetime | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether central has delivered it to all targets."""
        return self.status == "delivered"


class Notify:
    """The notifications of one site; you have it as `site.notify`."""

    def __init__(self, buffer: Buffer, endpoint: Callable[[], Endpoint], clock: Clock) -> None:
        self._buffer = buffer
        self._endpoint = endpoint
        self._clock = clock

    def to(self, list_name: str) -> "ListSender":
        """The list to notify. Any list, of any type: whom it means, and by which channel, is decided at central.

        Raises InvalidInput if the name is empty, too long or holds control characters. Whether the list exists is
        found out at central.
        """
        return ListSender(self._buffer, self._clock, check_list_name(list_name))

    def status(self, notification_id: NotificationId | str) -> NotificationStatus:
        """Where the notification stands: answered from the buffer while it is there, else asked of central.

        Raises InvalidInput for a malformed id, and Unavailable when central would have to be asked and does not answer
        (which never means `unknown`).
        """
        known_id = parse_notification_id(notification_id)
        message = self._buffer.find(known_id)
        if message is None:
            return self._ask_central(known_id)
        if isinstance(message, RejectedMessage):
            error = f"{message.code}: {message.error}"
            return NotificationStatus(known_id, "rejected", message.retry_count, error, message.created_at)
        return NotificationStatus(
            known_id,
            "forwarding",
            message.retry_count,
            message.last_error,
            message.created_at,
            next_attempt_at=message.due_at,
        )

    def _ask_central(self, notification_id: NotificationId) -> NotificationStatus:
        try:
            answer = ask_status(self._endpoint(), notification_id)
        except NotFound:
            return NotificationStatus(notification_id, "unknown")
        except Denied as error:
            raise Unavailable(error.code, error.message, hint="ask whoever runs central for a new token") from error
        return _from_answer(notification_id, answer)


class ListSender:
    """A list that `notify.to` named."""

    def __init__(self, buffer: Buffer, clock: Clock, list_name: str) -> None:
        self._buffer = buffer
        self._clock = clock
        self._list_name = list_name

    def send(
        self,
        subject: str,
        body: str,
        *,
        key: str | None = None,
        instance: str | None = None,
        script: str | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> NotificationId:
        """Notify the list. When this returns, the notification is on this machine's disk and will be forwarded.

        Args:
            subject: one line, at most 998 bytes of UTF-8.
            body: plain text, at most 256 KiB of UTF-8.
            key: a name of your own for this send: made again with the same key, list, subject and body, it is the same
                notification and returns the same id.
            instance: which machine or unit it is about.
            script: which script sends it.
            execution_id: the run of the script.
            parent_execution_id: the run that started this run.

        Raises:
            InvalidInput: a text breaks a rule; `field` names it. Nothing was written.
            Conflict: the key was used before, for something else.
            Unavailable: the buffer cannot be written (`buffer.full`, `buffer.busy`, `buffer.io`); not accepted.
        """
        now = to_microseconds(self._clock.now())
        labels = labels_of((instance, script, execution_id, parent_execution_id))
        notification_id = fresh_id(now // 1000)
        text = microseconds_to_text(now)
        item = Item(notification_id, self._list_name, check_subject(subject), check_body(body), text, *labels)
        stood = self._buffer.add(
            notification_id,
            _encode(item).decode(),
            now,
            None if key is None else key_for(key, Category.NOTIFICATION.value, self._list_name, subject, body),
        )
        return stood  # type: ignore[return-value]  # It is what NotificationId would give, without the call.

    def __repr__(self) -> str:
        return f"Recipients({self._list_name!r})"


def _from_answer(notification_id: NotificationId, answer: StatusAnswer) -> NotificationStatus:
    return NotificationStatus(
        notification_id,
        # A newer central may know more words than this version; they are passed on as they are.
        cast(StatusWord, answer.status),
        answer.retry_count,
        answer.last_error,
        _time(answer.enqueued_at),
        _time(answer.delivered_at),
        _time(answer.next_attempt_at),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)
