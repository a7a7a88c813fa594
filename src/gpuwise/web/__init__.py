"""The page: what runs, what waits and why, live in a browser."""
