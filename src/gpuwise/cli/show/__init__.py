"""How the command line shows rows, jobs, times and live tables."""
