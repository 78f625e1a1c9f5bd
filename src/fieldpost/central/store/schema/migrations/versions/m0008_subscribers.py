"""The role subscriber: owner names of users and tokens, and whether a receiver has answered its test."""

from alembic import op

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0008"
down_revision = "m0007"

_ROLES = "CHECK (role in ('viewer', 'operator', 'admin', 'subscriber'))"
_OWNER = "CHECK ((role = 'subscriber') = (subscription_owner is not null))"
_COLUMNS = "name, password_hash, role, created_at, created_by, disabled_at, last_login_at, subject, version"


def upgrade() -> None:
    run_beside(__file__)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE users DROP CONSTRAINT ck_users_role")
        op.execute(f"ALTER TABLE users ADD CONSTRAINT ck_users_role {_ROLES}")
        op.execute("ALTER TABLE users ADD COLUMN subscription_owner TEXT")
        op.execute(f"ALTER TABLE users ADD CONSTRAINT ck_users_subscription_owner {_OWNER}")
    else:
        _rebuild_users()


def _rebuild_users() -> None:
    """SQLite cannot change a constraint. Dropping the table would delete the login links, so they are kept apart."""
    op.execute("CREATE TEMPORARY TABLE kept_links AS SELECT * FROM login_links")
    op.execute(
        "CREATE TABLE new_users (name TEXT NOT NULL, password_hash TEXT, role TEXT NOT NULL, created_at BIGINT NOT"
        " NULL, created_by TEXT, disabled_at BIGINT, last_login_at BIGINT, subject TEXT, version BIGINT DEFAULT '1' NOT"
        " NULL, subscription_owner TEXT, CONSTRAINT pk_users PRIMARY KEY (name),"
        f" CONSTRAINT ck_users_role {_ROLES}, CONSTRAINT ck_users_subscription_owner {_OWNER} )"
    )
    op.execute(f"INSERT INTO new_users ({_COLUMNS}) SELECT {_COLUMNS} FROM users")
    op.execute("DELETE FROM login_links")
    op.execute("DROP TABLE users")
    op.execute("ALTER TABLE new_users RENAME TO users")
    op.execute("CREATE UNIQUE INDEX ix_users_subject ON users (subject)")
    op.execute("INSERT INTO login_links SELECT * FROM kept_links")
    op.execute("DROP TABLE kept_links")
