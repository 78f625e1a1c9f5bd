"""Alembic's entry point: runs on the connection that `schema.migrate` passes, inside its transaction."""

from alembic import context

from fieldpost.central.store.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
