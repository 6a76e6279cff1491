"""Alembic environment: runs the migrations on the connection passed by `migrations.upgrade`."""

from alembic import context

from tutelage.people.store import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    version_table=schema.revision.name,
    render_as_batch=True,
)
context.run_migrations()
