"""What it takes to resume an episode after a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "resume_points",
        sa.Column("episode", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text()),
        sa.Column("snapshot", sa.LargeBinary()),
        sa.Column("snapshot_index", sa.Integer()),
        sa.PrimaryKeyConstraint("episode"),
    )
