"""Jobs that take turns on the same devices."""
