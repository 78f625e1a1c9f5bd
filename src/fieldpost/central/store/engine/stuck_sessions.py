"""Sessions of frozen nodes on PostgreSQL that no timeout of the server ends.

The server ends a session that is idle in a transaction (`postgres_store`). It does not call one idle whose client sent
a new statement to be parsed and has not sent the values yet: such a session is active, waits for its client, and keeps
its locks for as long as the node is frozen. A statement timeout does not apply while the server reads from the client,
and a transaction timeout exists since PostgreSQL 17 only. So the other nodes end these sessions; the role may end its
own ones. Parsing takes milliseconds, hence a session in this state for a lease belongs to a frozen node.
"""

from sqlalchemy import Boolean, Connection

from fieldpost.central.store.engine.statement import Statement

# The session's limit for idle transactions is the lease. A session without a limit ends none.
_end = Statement(
    """
    select pg_terminate_backend(pid) as is_ended from pg_stat_activity
    where datname = current_database() and usename = current_user
        and application_name = current_setting('application_name') and pid <> pg_backend_pid()
        and state = 'active' and wait_event = 'ClientRead' and backend_type = 'client backend'
        and state_change < clock_timestamp()
            - cast(nullif(current_setting('idle_in_transaction_session_timeout'), '0') as interval)
    """,
    sqlite="select 1 as is_ended where false",
    result={"is_ended": Boolean},
)


def end_stuck_sessions(conn: Connection) -> int:
    """End the sessions that have waited for their clients within a transaction for a lease; how many."""
    return sum(row.is_ended for row in _end.run(conn))
