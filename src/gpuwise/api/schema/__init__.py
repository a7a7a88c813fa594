"""What clients send and receive."""
