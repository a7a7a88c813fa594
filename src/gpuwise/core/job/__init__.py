"""What a job is: its properties, its rules, its tasks, and the table of all jobs."""
