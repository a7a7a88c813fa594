"""The outcome of a simulation: figures, tables, plots and an HTML report."""
