"""Small trainings for ``gpuwise up --demo``: scripts that run for seconds on a CPU, and really learn."""
