"""Notifications for scripts: `site.notify.to("operators").send(subject, body)` and `site.notify.status(id)`.

`send` checks its arguments, writes to the buffer and returns; it never uses the network and needs no agent. Central
keeps the record of a notification that has left the site, so `status` asks central, and raises if that fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

import msgspec

from fieldpost.clock import Clock
from fieldpost.core.alarm import check_incident, check_is_cleared, check_severity
from fieldpost.core.errors import Denied, NotFound, Unavailable
from fieldpost.core.ids import NotificationId, parse_notification_id
from fieldpost.core.notification import alarm_texts
from fieldpost.core.sites.message import Category, RejectedMessage
from fieldpost.core.text import check_body, check_list_name, check_subject
from fieldpost.core.times import from_text, microseconds_to_text, to_microseconds
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Item, StatusAnswer
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.fresh_ids import fresh_id
from fieldpost.site.buffer.keys import key_for
from fieldpost.site.provenance import labels_of

StatusWord = Literal["forwarding", "rejected", "unknown", "pending", "retrying", "delivered", "parked", "discarded"]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class NotificationStatus:
    """The status of a notification.

    `forwarding`: still in this site's buffer. `rejected`: central refused it for good; it is in this site's rejected
    box. `unknown`: neither this site nor central has the id. The others come from central: `pending` (before its first
    attempt), `retrying`, `delivered`, `parked` (waits for a person), `discarded` (by a person).
    """

    notification_id: NotificationId
    status: StatusWord
    retry_count: int = 0
    """Failed attempts of forwarding, or at central of delivery in the present cycle."""
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
    """The notifications of one site, available as `site.notify`."""

    def __init__(self, buffer: Buffer, endpoint: Callable[[], Endpoint], clock: Clock, wait_ms: int = 0) -> None:
        """`wait_ms`: how long `send` waits for the copy on the other node of a pair."""
        self._buffer = buffer
        self._endpoint = endpoint
        self._wait_ms = wait_ms
        self._clock = clock

    def to(self, list_name: str) -> "ListSender":
        """The list to notify. Its targets and channel are defined at central.

        Raises InvalidInput if the name is empty, too long or contains control characters. Whether the list exists is
        checked at central.
        """
        return ListSender(self._buffer, self._clock, check_list_name(list_name), self._wait_ms)

    def status(self, notification_id: NotificationId | str) -> NotificationStatus:
        """The status of the notification: from the buffer while it is there, else from central.

        Raises InvalidInput for a malformed id, and Unavailable if central is needed and does not answer.
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
        from fieldpost.link.status import ask_status  # here, because it loads the HTTP client, which send does not need

        try:
            answer = ask_status(self._endpoint(), notification_id)
        except NotFound:
            return NotificationStatus(notification_id, "unknown")
        except Denied as error:
            raise Unavailable(error.code, error.message, hint="ask the operator of central for a new token") from error
        return _from_answer(notification_id, answer)


class ListSender:
    """Sends notifications to one list; returned by `notify.to`."""

    def __init__(self, buffer: Buffer, clock: Clock, list_name: str, wait_ms: int = 0) -> None:
        self._buffer = buffer
        self._wait_ms = wait_ms
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
        severity: str | None = None,
        incident: str | None = None,
        is_cleared: bool = False,
    ) -> NotificationId:
        """Notify the list. When this returns, the notification is on this machine's disk and will be forwarded.

        Args:
            subject: one line, at most 998 bytes of UTF-8.
            body: plain text, at most 256 KiB of UTF-8.
            key: idempotency key: a repeated send with the same key and content is the same notification and returns the
                same id.
            instance: the machine or unit concerned.
            script: the sending script.
            execution_id: the run of the script.
            parent_execution_id: the run that started this run.
            severity: info, warning, error or critical; without it, the default of the list.
            incident: the subject of the alarm, at most 255 characters: the same text when it is raised and cleared.
            is_cleared: whether this reports that the incident is over.

        Raises:
            InvalidInput: an argument is invalid; `field` names it. Nothing was written.
            Conflict: the key was used before with different content.
            Unavailable: the buffer cannot be written (`buffer.full`, `buffer.busy`); not accepted. After `buffer.io`,
                a failure of the disk, it may still be delivered; sent again with the same key, it is delivered once.
        """
        now = to_microseconds(self._clock.now())
        labels = labels_of((instance, script, execution_id, parent_execution_id))
        notification_id = fresh_id(now // 1000)
        text = microseconds_to_text(now)
        item = Item(
            notification_id,
            self._list_name,
            check_subject(subject),
            check_body(body),
            text,
            *labels,
            severity=check_severity(severity),
            incident=check_incident(incident),
            is_cleared=check_is_cleared(is_cleared),
        )
        content = (self._list_name, subject, body, *alarm_texts(item.severity, incident, is_cleared))
        stored_id = self._buffer.add(
            notification_id,
            _encode(item).decode(),
            now,
            None if key is None else key_for(key, Category.NOTIFICATION.value, *content),
        )
        if self._wait_ms:
            from fieldpost.site.buffer.pair.copy_wait import wait_for_copy

            wait_for_copy(self._buffer, "message", stored_id, self._wait_ms, self._clock.monotonic)
        return stored_id  # type: ignore[return-value]  # Calling NotificationId would cost time and change nothing.

    def __repr__(self) -> str:
        return f"ListSender({self._list_name!r})"


def _from_answer(notification_id: NotificationId, answer: StatusAnswer) -> NotificationStatus:
    return NotificationStatus(
        notification_id,
        # A newer central may have more statuses than this version; they are passed on unchanged.
        cast(StatusWord, answer.status),
        answer.retry_count,
        answer.last_error,
        _time(answer.enqueued_at),
        _time(answer.delivered_at),
        _time(answer.next_attempt_at),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)
