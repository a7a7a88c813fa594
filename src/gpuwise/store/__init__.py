"""Keeps jobs, the journal and who may do what in SQLite, or in PostgreSQL by its URL."""
