"""Migrations of the trajectory store, run by Alembic."""
