"""The schema of the first release, from m0001_first.sql: frozen, while `schema/` goes on to change."""

from alembic import op

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0001"
down_revision = None

# Audit entries are never changed, and only the purge deletes them. It says so within its transaction: by a setting on
# PostgreSQL, by a column on SQLite, which has no such settings.
_REFUSED = "audit entries cannot be changed or deleted"
_POSTGRESQL = (
    f"""
    CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND current_setting('fieldpost.is_purging', true) = 'true' THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION '{_REFUSED}';
    END $$
    """,
    "CREATE TRIGGER keep_audit BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit()",
    "CREATE TRIGGER keep_all_audit BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION keep_audit()",
)
_SQLITE = (
    f"CREATE TRIGGER keep_audit_update BEFORE UPDATE ON audit BEGIN SELECT raise(abort, '{_REFUSED}'); END",
    f"""
    CREATE TRIGGER keep_audit_delete BEFORE DELETE ON audit WHEN NOT (SELECT is_purging FROM audit_purges)
    BEGIN SELECT raise(abort, '{_REFUSED}'); END
    """,
)


def upgrade() -> None:
    run_beside(__file__)
    for statement in _POSTGRESQL if op.get_bind().dialect.name == "postgresql" else _SQLITE:
        op.execute(statement)
