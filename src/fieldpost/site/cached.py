"""Cached calls for scripts: `site.external("erp").call("POST", "/orders", …)`, `site.database("plant").write(…)`.

Theory of operation. A call is first written to the buffer, claimed by this process, and then attempted once. If it
succeeds, its message leaves the buffer in the transaction that makes its record `delivered`. If it is refused for good,
the record becomes `failed` and the script gets OperationFailed. If the attempt fails temporarily, the claim is released
and the agent retries at the interval of the definition. If this process dies meanwhile, the claim expires and the agent
takes over. In every case this site can report the status by the call's id.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic
from weakref import WeakSet, finalize

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, OperationFailed
from fieldpost.core.ids import CallId
from fieldpost.core.sites.forwarding import CallDecision, Fail
from fieldpost.core.sites.message import CallStatus, Category, Message, NewCall
from fieldpost.core.times import to_microseconds
from fieldpost.site.background import Background, abandon, at_exit, background
from fieldpost.site.buffer import calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.fresh_ids import fresh_id
from fieldpost.site.buffer.keys import key_for
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.carriers.call_arguments import check_call
from fieldpost.site.carriers.carrier import CallCarrier, D
from fieldpost.site.carriers.payloads import DatabaseWrite, ExternalCall, Scalar, encode, target_summary
from fieldpost.site.carriers.write_arguments import check_write
from fieldpost.site.config.database import Database
from fieldpost.site.config.external import External
from fieldpost.site.forwarding.attempt import attempt, claim_time
from fieldpost.site.provenance import Labels, provenance_of

CLOSE_S = 5.0
NO_RETRY = "it is not retried; correct the arguments of the call or write"

_log = logging.getLogger("fieldpost.site")  # structlog would double the import time of a script


class _Target(Generic[D]):
    """A target that `site.toml` defines."""

    def __init__(self, caller: "Caller[D]", definition: D, site: str) -> None:
        self._caller = caller
        self._definition = definition
        self._site = site

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._definition.name!r})"


class ExternalSystem(_Target[External]):
    """An external system that `site.toml` defines; returned by `site.external(name)`."""

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        body: str | bytes | None = None,
        key: str | None = None,
        instance: str | None = None,
        script: str | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> CallId:
        """Call the system. When this returns, the call was delivered, or is on this machine's disk and will be retried;
        `site.tracking.status(id)` returns its status. If a response is lost, the same call may arrive twice: the system
        gets the call's id as `Idempotency-Key`.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: the path below the system's URL, starting with `/`.
            query: names and values (strings, numbers, booleans, or lists of them).
            headers: additional headers of this call.
            json: a body to send as JSON, or
            body: a body to send unchanged.
            key: idempotency key: a repeated call with the same key and content is the same call and returns the same
                id, or raises the same refusal.
            instance: the machine or unit concerned.
            script: the calling script.
            execution_id: the run of the script.
            parent_execution_id: the run that started this run.

        Raises:
            InvalidInput: an argument is invalid; `field` names it. Nothing was written or called.
            OperationFailed: the system refused the call for good (a 4xx or 3xx); it is not retried.
            Conflict: the key was used before with different content.
            Unavailable: the buffer cannot be written (`buffer.full`, `buffer.busy`); nothing was called. After
                `buffer.io`, a failure of the disk, the agent may still make the call; with a key, it makes it once.
        """
        payload = check_call(self._definition, method, path, query=query, headers=headers, json=json, body=body)
        given = (instance, script, execution_id, parent_execution_id)
        return self._caller.issue(self._definition, payload, self._site, given, key)


class DatabaseConnection(_Target[Database]):
    """A database connection that `site.toml` defines; returned by `site.database(name)`."""

    def write(
        self,
        statement: str,
        parameters: Mapping[str, Scalar] | None = None,
        *,
        key: str | None = None,
        instance: str | None = None,
        script: str | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> CallId:
        """Write to the database. When this returns, the write was committed there, or is on this machine's disk and
        will be retried; `site.tracking.status(id)` returns its status. If a response is lost, the same write may arrive
        twice: a statement can use `:call_id` to recognize that.

        Args:
            statement: the name of a statement that `site.toml` defines, or SQL if the connection allows it.
            parameters: values for the statement's `:names`; str, int, float, bool or None.
            key: idempotency key: a repeated write with the same key and content is the same write and returns the same
                id, or raises the same refusal.
            instance: the machine or unit concerned.
            script: the writing script.
            execution_id: the run of the script.
            parent_execution_id: the run that started this run.

        Raises:
            InvalidInput: an argument is invalid; `field` names it. Nothing was written.
            OperationFailed: the database refused the write for good; it is not retried.
            Conflict: the key was used before with different content.
            Unavailable: the buffer cannot be written (`buffer.full`, `buffer.busy`); nothing was written. After
                `buffer.io`, a failure of the disk, the agent may still make the write; with a key, it makes it once.
        """
        payload = check_write(self._definition, statement, parameters)
        given = (instance, script, execution_id, parent_execution_id)
        return self._caller.issue(self._definition, payload, self._site, given, key)


class Caller(Generic[D]):
    """Issues the cached calls of one category and makes their first attempts, in this process."""

    def __init__(
        self,
        buffer: Buffer,
        category: Category,
        make_carrier: Callable[[], CallCarrier[D]],
        clock: Clock,
        wait_ms: int = 0,
    ) -> None:
        """`wait_ms`: how long a call waits for its copy on the other node of a pair, before its first attempt."""
        self._wait_ms = wait_ms
        self._buffer = buffer
        self._category = category
        self._make_carrier = make_carrier
        self._clock = clock
        self._open: tuple[Background, CallCarrier[D]] | None = None
        self._lock = threading.Lock()
        _callers.add(self)

    def issue(
        self,
        definition: D,
        payload: ExternalCall | DatabaseWrite,
        site: str,
        given: Labels,
        key_text: str | None,
    ) -> CallId:
        """Buffer the call, attempt it once and settle the result. Raises OperationFailed if it was refused for good."""
        now = self._clock.now()
        content, target = encode(payload), definition.name
        call = NewCall(
            call_id=CallId(fresh_id(to_microseconds(now) // 1000)),
            category=self._category,
            target=target,
            target_summary=target_summary(target, payload),
            payload=content,
            provenance=provenance_of(site, given),
            created_at=now,
        )
        key = key_for(key_text, self._category.value, target, content)
        until = now + claim_time(definition)
        issued = self._buffer.issue(call, claimant=f"caller-{os.getpid()}", until=until, key=key)
        if issued.message is None:
            self._refuse_again(issued.call_id)
        else:
            if self._wait_ms:
                from fieldpost.site.buffer.pair.copy_wait import wait_for_copy

                wait_for_copy(self._buffer, "call", issued.call_id, self._wait_ms, self._clock.monotonic)
            self._try(issued.message, definition)
        return issued.call_id

    def close(self) -> None:
        """Close connections to targets; the next call opens them again."""
        with self._lock:
            opened, self._open = self._open, None
        if opened is None:
            return
        loop, carrier = opened
        if not loop.is_present:
            abandon(opened)
            return
        # Closing is only a courtesy to the other side, so failures do not matter.
        with suppress(Exception):
            loop.run(lambda: asyncio.wait_for(carrier.close(), CLOSE_S))

    def _refuse_again(self, call_id: CallId) -> None:
        """Raise the refusal of the earlier call with the same key, if it was refused."""
        record = Tracking(self._buffer.read).find(call_id)
        if record is not None and record.status is CallStatus.FAILED:
            raise OperationFailed(
                "call.failed",
                f"the call with this key was refused before: {record.last_error}",
                hint=NO_RETRY,
                call_id=call_id,
                http_status=record.http_status,
            )

    def _try(self, message: Message, definition: D) -> None:
        loop, carrier = self._carrier()
        try:
            decision = loop.run(lambda: attempt(carrier, message, definition, self._clock, is_caller=True))
        except BaseException:
            # Interrupted: the agent continues with the call, now or when the claim has expired.
            with suppress(FieldpostError):
                self._buffer.write(calls.release, [message])
            raise
        self._settle(message, decision)

    def _settle(self, message: Message, decision: CallDecision) -> None:
        try:
            record = self._buffer.write(calls.settle, message, decision, self._clock.now())
        except FieldpostError as error:
            if isinstance(decision, Fail):
                raise _failed(message, decision) from error
            # The call is still in the buffer: the agent retries it when the claim has expired.
            _log.warning(
                "call.not_settled message_id=%s code=%s error=%s", message.message_id, error.code, error.message
            )
            return
        # If the claim was lost meanwhile, the agent has taken the call over and its result counts.
        if record is not None and isinstance(decision, Fail):
            raise _failed(message, decision)

    def _carrier(self) -> tuple[Background, CallCarrier[D]]:
        loop = background()
        with self._lock:
            if self._open is not None and not self._open[0].is_present:
                abandon(self._open)
                self._open = None
            if self._open is None:
                self._open = loop, self._make_carrier()
                finalize(self, _let_go, self._open).atexit = False
            return self._open

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


def _failed(message: Message, decision: Fail) -> OperationFailed:
    return OperationFailed(
        decision.code,
        decision.error,
        hint=NO_RETRY,
        call_id=message.message_id,
        http_status=decision.http_status,
    )


def _let_go(opened: tuple[Background, CallCarrier[Any]]) -> None:
    """Close the connections of a site that was collected without being closed. Never waits: any thread may run this."""
    loop, carrier = opened
    if loop.is_present:
        asyncio.run_coroutine_threadsafe(carrier.close(), loop.loop)
    else:
        abandon(opened)


_callers: "WeakSet[Caller[Any]]" = WeakSet()


def _close_all() -> None:
    """Close connections to targets at exit, for scripts that do not close their site."""
    for caller in list(_callers):
        caller.close()


def _after_fork_in_child() -> None:
    for caller in list(_callers):
        caller._after_fork_in_child()


at_exit(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
