"""What the cluster is: its nodes, what is free on them, the queue, and the state as a whole."""
