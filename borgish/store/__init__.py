"""Keeps the journal, the tables and the checkpoints of a cell in SQLite or Postgres."""
