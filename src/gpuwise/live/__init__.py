"""Jobs that run for real: the controller, and this machine as its executor."""
