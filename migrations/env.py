"""Runs migrations on the connection it is given by a borgmaster, or by hand on a database that is named:

    alembic -x url=sqlite:////var/lib/borgish/cell.db current
    alembic -x url=postgresql://user:password@host/database upgrade head
    alembic history

``[tool.alembic]`` in pyproject.toml names this folder, so run it at the root of a checkout. The database is
locked as a borgmaster locks it: SQLite is refused while one runs.
"""

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from borgish.errors import BorgishError
from borgish.failpoints import reach
from borgish.store.open import connect
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
    if context.is_offline_mode():
        raise CommandError("--sql is not supported: migrations read the database. Name one with -x url=...")
    url = context.get_x_argument(as_dictionary=True).get("url")
    if not url:
        raise CommandError("no database is named. Write: alembic -x url=sqlite:////path/to/cell.db current")
    try:
        connection, release = connect(url)
    except BorgishError as error:
        raise CommandError(str(error)) from error
    try:
        with connection:
            run(connection)
            connection.commit()
    finally:
        connection.engine.dispose()
        release()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    run_by_hand()
