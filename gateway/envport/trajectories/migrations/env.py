"""Run by Alembic to migrate the trajectory store. The connection comes from `database.py`."""

from alembic import context

from envport.trajectories.schema import metadata

# Migrations run inside the transaction of whoever calls them.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
