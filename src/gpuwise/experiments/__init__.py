"""Published experiments, run again: our figure beside theirs."""
