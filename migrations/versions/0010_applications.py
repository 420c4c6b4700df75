"""Applications: what they are, and which jobs and crons are theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "apps",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uid", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("applied_at", sa.Double, nullable=False),
        sa.Column("applied_by", sa.Text, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("annotations", sa.JSON, nullable=False),
        sa.Column("documents", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("key", name="apps_pkey"),
    )
    op.add_column("jobs", sa.Column("app", sa.Text, nullable=False, server_default=""))
    op.add_column("crons", sa.Column("app", sa.Text, nullable=False, server_default=""))
