"""What policies that cut GPUs into MIG slices share."""
