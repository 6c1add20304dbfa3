"""The table of rows, with columns to find the rows of a run and of a release."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None


def upgrade() -> None:
    """From nothing."""
    op.create_table(
        "beam_ldp_ledger",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("run_id", sa.String(200), index=True),
        sa.Column("part", sa.String(200)),
        sa.Column("release_key", sa.String(32), index=True),
        sa.Column("identity_digest", sa.String(64), index=True),
        sa.Column("population", sa.String(200)),
        sa.Column("period", sa.BigInteger),
    )


def downgrade() -> None:
    """Not offered."""
    raise NotImplementedError("a ledger is never taken apart")
