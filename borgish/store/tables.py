"""The tables, as SQLAlchemy Core sees them; people query them with SQL, so their names are words.

How they come to be in a database is in ``migrations/``; a test holds the two alike. Times are
seconds since 1970; what is a list or a mapping is JSON.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

REVISION = "0005"
"""The newest migration: what a store must be at before it is used."""

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)

# In SQLite an INTEGER key is the row's own number: rows of any size, in order, without an index.
_Position = BigInteger().with_variant(Integer(), "sqlite")

journal = Table(
    "journal",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("timeline", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("events", JSON, nullable=False),
    Column("command", JSON(none_as_null=True)),  # what events lack (``cell.recorded``); NULL: not recorded
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("sha256", Text, nullable=False),  # of the body as stored
    Column("bytes", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("name", Text, nullable=False, server_default=""),  # "" for those that go by the rule
)

# One row. Every append updates it where the epoch is its own, so that a master whose time is over
# cannot write.
leadership = Table(
    "leadership",
    metadata,
    Column("cell", Text, primary_key=True),
    Column("timeline", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("renewed_at", DateTime(timezone=True), nullable=False),  # on the database's clock
)

jobs = Table(
    "jobs",
    metadata,
    Column("key", Text, primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("band", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("dead", Integer, nullable=False),
    Column("finished", Integer, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("submitted_by", Text, nullable=False),
    Column("spec", JSON, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("job", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("machine", Text, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("since", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("ending", Text),
    Column("exit_code", BigInteger),
    Column("signal", Integer),
    Column("started_at", Double, nullable=False),
    Column("previous_attempt", BigInteger, nullable=False),
    Column("previous_machine", Text, nullable=False),
    Column("devices", JSON, nullable=False, server_default="[]"),
    Column("alloc", Integer, nullable=False, server_default="-1"),
    Column("promised", Text, nullable=False, server_default=""),
    Column("notice_seconds", Double, nullable=False, server_default="-1"),
    sqlite_with_rowid=False,
)

machines = Table(
    "machines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("tls", Boolean, nullable=False),
    Column("up", Boolean, nullable=False),
    Column("cordoned", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("cpu_millis", BigInteger, nullable=False),
    Column("ram_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("named", JSON, nullable=False),
    Column("attributes", JSON, nullable=False),
    Column("runtimes", JSON, nullable=False),
    Column("ports_low", Integer, nullable=False),
    Column("ports_high", Integer, nullable=False),
    Column("port_next", Integer, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("joined_at", Double, nullable=False),
    Column("devices", JSON, nullable=False, server_default="{}"),
    Column("taints", JSON, nullable=False, server_default="[]"),
)

quotas = Table(
    "quotas",
    metadata,
    Column("user_name", Text, primary_key=True),
    Column("band", Text, primary_key=True),
    Column("cpu_millis", BigInteger, nullable=False),
    Column("ram_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("named", JSON, nullable=False),
    Column("devices", JSON, nullable=False),
    Column("until", Double, nullable=False),
)

# What tasks used, each row some machines' at a moment (``store.usage``): nothing of the cell follows from it.
usage_samples = Table(
    "usage_samples",
    metadata,
    Column("at", Double, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("samples", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
