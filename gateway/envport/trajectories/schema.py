"""The tables of the trajectory store. `migrations/` makes them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

__all__ = [
    "attachments",
    "blobs",
    "episode_blobs",
    "episodes",
    "gateways",
    "labels",
    "listings",
    "metadata",
    "openings",
    "resume_points",
    "steps",
]

metadata = MetaData()

# One row for each run of an episode: a reset begins another. What may be large is in `openings`, so that filters read
# little.
episodes = Table(
    "episodes",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),  # by time
    Column("handle", Text, nullable=False),
    Column("resets", Integer, nullable=False),
    Column("latest", Boolean, nullable=False),  # whether it is the latest run of its episode
    Column("gateway", Text, nullable=False),  # the journal that it came by
    Column("principal", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("environment_version", Text, nullable=False),
    Column("split", Text),
    Column("task_id", Text),
    Column("task_index", BigInteger),
    Column("seed", BigInteger),
    Column("fingerprint", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text),
    Column("fault", Text),
    Column("lost", Boolean, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    Column("reward", Double),
    Column("score", Double),
    Column("environment_seconds", Double, nullable=False),
    Column("ended_at", Double),
    Column("updated_at", Double, nullable=False),
    Column("forked_from", Text),
    Column("forked_at", Integer),
    Column("bytes", BigInteger, nullable=False),  # about what its calls take
    Index("episodes_by_handle", "handle"),
    Index("episodes_by_environment", "environment", "id"),
    Index("episodes_live", "gateway", "ended_at"),
)

openings = Table(
    "openings",
    metadata,
    Column("episode", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),  # JSON: prompt, task, labels, first observation
    Column("outcome", Text),  # JSON
)

labels = Table(
    "labels",
    metadata,
    Column("episode", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Index("labels_by_value", "name", "value", "episode"),
)

steps = Table(
    "steps",
    metadata,
    Column("episode", BigInteger, primary_key=True, autoincrement=False),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),  # StepRecord as JSON; images are in `blobs`
    sqlite_with_rowid=False,
)

# The latest one of each live episode, if the gateway was told to resume episodes.
resume_points = Table(
    "resume_points",
    metadata,
    Column("episode", BigInteger, primary_key=True, autoincrement=False),
    Column("index", Integer, nullable=False),  # of the latest call
    Column("call_id", Text),  # of the latest call
    Column("snapshot", LargeBinary),  # of the environment
    Column("snapshot_index", Integer),  # of the call that the snapshot comes after
)

listings = Table(
    "listings",
    metadata,
    Column("fingerprint", Text, primary_key=True),
    Column("tools", Text, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", Text, primary_key=True),  # SHA-256 of the data in base64
    Column("data", LargeBinary, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

episode_blobs = Table(
    "episode_blobs",
    metadata,
    Column("episode", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", Text, primary_key=True),
    Index("episode_blobs_by_digest", "digest"),
)

attachments = Table(
    "attachments",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

# When a gateway last said that it runs. Its live episodes are lost with it.
gateways = Table(
    "gateways",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seen_at", Double, nullable=False),
)
