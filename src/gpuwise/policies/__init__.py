"""Who gets which GPUs: one file per policy, and what they share in folders by subject."""
