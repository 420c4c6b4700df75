"""Versions of jobs, and of what tasks run; generations; leases of exclusive tasks; drains."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("version", sa.Integer, nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("versioned_at", sa.Double, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("versioned_by", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("held", sa.Text, nullable=False, server_default=""))
    op.add_column("tasks", sa.Column("version", sa.Integer, nullable=False, server_default="1"))
    op.add_column("tasks", sa.Column("failed", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("machines", sa.Column("quarantined_until", sa.Double, nullable=False, server_default="0"))
    op.create_table(
        "versions",
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("versioned_at", sa.Double, nullable=False),
        sa.Column("versioned_by", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job", "version", name="versions_pkey"),
    )
    op.add_column("machines", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("quotas", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("generation", type_=sa.BigInteger)  # it is a position of the journal from now on
    op.create_table(
        "leases",
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("grace_seconds", sa.Double, nullable=False),
        sa.Column("lapses", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("job", "idx", "attempt", name="leases_pkey"),
    )
    op.add_column("machines", sa.Column("drains", sa.JSON, nullable=False, server_default="[]"))
    op.create_table(
        "budgets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("selector", sa.JSON, nullable=False),
        sa.Column("max_unavailable", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="budgets_pkey"),
    )
