"""Small trainings for ``gpuwise up --demo``: scripts that really learn and run for seconds on a CPU."""
