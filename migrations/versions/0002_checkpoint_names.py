"""Checkpoints can have a name; those that are there have none."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("name", sa.Text, nullable=False, server_default=""))
