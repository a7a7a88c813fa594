"""Intervals around predictions, and the domain in which they are calibrated."""
