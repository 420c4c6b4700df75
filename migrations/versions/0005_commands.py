"""What the journal keeps of commands; those of the entries that are there were not recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("journal", sa.Column("command", sa.JSON, nullable=True))
