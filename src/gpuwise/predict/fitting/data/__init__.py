"""Readers of published measurements; the folder of the data sets is given, never assumed."""
