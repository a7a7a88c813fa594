"""Who gets which GPUs: one file a policy, and what they share in folders by subject."""
