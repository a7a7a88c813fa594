"""Replays job traces on a virtual cluster: traces in and out, workload generators, sweeps and reports."""
