"""Intervals of predictions, and the domain they hold in."""
