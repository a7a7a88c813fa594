"""How jobs that share a GPU, or run on a MIG slice, slow down."""
