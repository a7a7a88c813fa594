"""What a job, a node, an event and a decision are: the vocabulary every other package speaks."""
