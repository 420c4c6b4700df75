"""Devices, allocs, promised places and taints; quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("devices", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("tasks", sa.Column("alloc", sa.Integer, nullable=False, server_default="-1"))
    op.add_column("tasks", sa.Column("promised", sa.Text, nullable=False, server_default=""))
    op.add_column("tasks", sa.Column("notice_seconds", sa.Double, nullable=False, server_default="-1"))
    op.add_column("machines", sa.Column("devices", sa.JSON, nullable=False, server_default="{}"))
    op.add_column("machines", sa.Column("taints", sa.JSON, nullable=False, server_default="[]"))
    op.create_table(
        "quotas",
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("band", sa.Text, nullable=False),
        sa.Column("cpu_millis", sa.BigInteger, nullable=False),
        sa.Column("ram_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger, nullable=False),
        sa.Column("named", sa.JSON, nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("user_name", "band", name="quotas_pkey"),
    )
