"""What a model is: its operators with shapes, FLOPs, bytes and memory, found without a GPU and without weights."""
