"""How the tables came about, revision by revision; alembic runs them."""
