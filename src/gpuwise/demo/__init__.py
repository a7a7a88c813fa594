"""The demo of ``gpuwise up --demo``: small training jobs, and the order they are submitted in."""
