"""PyTorch models as graphs: one training step traced on tensors without data."""
