"""The first tables: journal, checkpoints, leadership, and the cell as people query it."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    position = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "journal",
        sa.Column("position", position, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("timeline", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("position", name="journal_pkey"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("position", position, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("position", name="checkpoints_pkey"),
    )
    op.create_table(
        "leadership",
        sa.Column("cell", sa.Text, nullable=False),
        sa.Column("timeline", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("cell", name="leadership_pkey"),
    )
    op.create_table(
        "jobs",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uid", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("band", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("tasks", sa.Integer, nullable=False),
        sa.Column("pending", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("dead", sa.Integer, nullable=False),
        sa.Column("finished", sa.Integer, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("submitted_by", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("key", name="jobs_pkey"),
    )
    op.create_table(
        "tasks",
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("idx", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("ports", sa.JSON, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("ending", sa.Text),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("signal", sa.Integer),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("previous_attempt", sa.BigInteger, nullable=False),
        sa.Column("previous_machine", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job", "idx", name="tasks_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "machines",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("tls", sa.Boolean, nullable=False),
        sa.Column("up", sa.Boolean, nullable=False),
        sa.Column("cordoned", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("cpu_millis", sa.BigInteger, nullable=False),
        sa.Column("ram_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger, nullable=False),
        sa.Column("named", sa.JSON, nullable=False),
        sa.Column("attributes", sa.JSON, nullable=False),
        sa.Column("runtimes", sa.JSON, nullable=False),
        sa.Column("ports_low", sa.Integer, nullable=False),
        sa.Column("ports_high", sa.Integer, nullable=False),
        sa.Column("port_next", sa.Integer, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("joined_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="machines_pkey"),
    )
