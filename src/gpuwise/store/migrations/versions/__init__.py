"""The revisions, each in a file of its own."""
