"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_DOUBLE: sa.types.TypeEngine[float] = sa.Double()


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "attachments",
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("handle", "kind"),
    )
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "episode_blobs",
        sa.Column("episode", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("episode", "digest"),
    )
    op.create_index("episode_blobs_by_digest", "episode_blobs", ["digest"], unique=False)
    op.create_table(
        "episodes",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("resets", sa.Integer(), nullable=False),
        sa.Column("latest", sa.Boolean(), nullable=False),
        sa.Column("gateway", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("environment_version", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("task_index", sa.BigInteger(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created_at", _DOUBLE, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("reward", _DOUBLE, nullable=True),
        sa.Column("score", _DOUBLE, nullable=True),
        sa.Column("environment_seconds", _DOUBLE, nullable=False),
        sa.Column("ended_at", _DOUBLE, nullable=True),
        sa.Column("updated_at", _DOUBLE, nullable=False),
        sa.Column("forked_from", sa.Text(), nullable=True),
        sa.Column("forked_at", sa.Integer(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("episodes_by_environment", "episodes", ["environment", "id"], unique=False)
    op.create_index("episodes_by_handle", "episodes", ["handle"], unique=False)
    op.create_index("episodes_live", "episodes", ["gateway", "ended_at"], unique=False)
    op.create_table(
        "gateways",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen_at", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "labels",
        sa.Column("episode", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("episode", "name"),
    )
    op.create_index("labels_by_value", "labels", ["name", "value", "episode"], unique=False)
    op.create_table(
        "listings",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint"),
    )
    op.create_table(
        "openings",
        sa.Column("episode", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.PrimaryKeyConstraint("episode"),
    )
    op.create_table(
        "steps",
        sa.Column("episode", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("episode", "index"),
        sqlite_with_rowid=False,
    )
