"""Graphs of the networks that step times were measured of, as rows of numbers."""
