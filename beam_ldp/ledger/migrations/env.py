"""Alembic's entry: upgrades the ledger in the database that `RowStore.migrate` names."""

from alembic import context

from beam_ldp.ledger.store import VERSION_TABLE, metadata


def _upgrade() -> None:
    engine = context.config.attributes["engine"]
    with engine.connect() as connection:
        context.configure(
            connection=connection, target_metadata=metadata, version_table=VERSION_TABLE
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()


_upgrade()
