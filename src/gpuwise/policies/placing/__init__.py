"""Placements: which nodes and devices a job gets."""
