"""Modes of folders that belong to the service."""

PRIVATE = 0o700
"""Only their owner may enter."""
PASSABLE = 0o711
"""Every account may pass to names that it knows."""
