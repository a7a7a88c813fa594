"""``submit``: from a job file or options to jobs on the service."""
