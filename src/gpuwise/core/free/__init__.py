"""What is free, a file per kind: idle devices, open devices, MIG slices, CPUs and memory, and who may have them."""
