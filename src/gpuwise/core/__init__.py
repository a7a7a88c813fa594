"""What a job, a node, an event and a decision are: the vocabulary every other package speaks."""

__version__ = "0.1.0"
