"""What a job will do: time, utilization, memory, interference, scaling and convergence, each with an interval."""
