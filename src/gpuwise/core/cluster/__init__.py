"""What the cluster is: its nodes, what is free on them, who waits, and the state as a whole."""
