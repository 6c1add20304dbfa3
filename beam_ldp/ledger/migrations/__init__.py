"""Versions of the ledger's table, for Alembic."""
