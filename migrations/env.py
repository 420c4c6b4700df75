"""Runs migrations on the connection it is given, or, for developers, on ``alembic -x url=...``."""

from alembic import context
from sqlalchemy import Connection, create_engine

from borgish.failpoints import reach
from borgish.store.tables import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,
        render_as_batch=connection.dialect.name == "sqlite",
        on_version_apply=lambda **_: reach("migrate.revised"),
    )
    with context.begin_transaction():
        context.run_migrations()


def run_by_hand() -> None:
    with create_engine(context.get_x_argument(as_dictionary=True)["url"]).connect() as connection:
        run(connection)
        connection.commit()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    run_by_hand()
