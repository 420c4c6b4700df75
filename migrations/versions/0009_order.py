"""Jobs that wait for other jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("waits_since", sa.Double, nullable=False, server_default="0"))
