"""Jobs that run on time, and whose run a job is."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("cron", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("due", sa.Double, nullable=False, server_default="0"))
    op.create_table(
        "crons",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("schedule", sa.Text, nullable=False),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("overlap", sa.Text, nullable=False),
        sa.Column("missed", sa.Text, nullable=False),
        sa.Column("keep", sa.Integer, nullable=False),
        sa.Column("paused", sa.Text, nullable=False),
        sa.Column("last", sa.Double, nullable=False),
        sa.Column("next", sa.Double, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("late_seconds", sa.Double, nullable=False),
        sa.Column("among", sa.Integer, nullable=False),
        sa.Column("set_at", sa.Double, nullable=False),
        sa.Column("set_by", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("job", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("key", name="crons_pkey"),
    )
