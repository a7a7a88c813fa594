"""The client of the REST API."""
