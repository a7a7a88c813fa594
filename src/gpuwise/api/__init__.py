"""The REST API: parses, calls a use case, shows."""
