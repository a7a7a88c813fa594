"""Jobs as processes of this machine: a supervisor for each attempt, and the executor that controls them."""
