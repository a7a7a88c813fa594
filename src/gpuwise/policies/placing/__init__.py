"""Where a job goes: the placements, by name."""
