"""The supervisor: a program of its own that runs one attempt and outlives the controller. Standard library only.

Its modules import each other by relative names, as it runs without gpuwise on its path; and all of them at the start,
as gpuwise may be upgraded while it runs.
"""
