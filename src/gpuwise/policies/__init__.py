"""Who gets which GPUs: one file a policy, and the placements they share."""
