"""The devices of this machine as the executor keeps them: lost, claimed, partitioned."""
