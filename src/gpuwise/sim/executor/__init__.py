"""The virtual executor: jobs advance by their true rates on a simulated clock."""
