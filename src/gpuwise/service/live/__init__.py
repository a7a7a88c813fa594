"""The use cases of the running service."""
