"""What is known of each attempt: its folder, its messages, its outcome."""
