"""What policies that partition GPUs with MIG share."""
