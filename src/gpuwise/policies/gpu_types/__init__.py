"""What policies that choose between GPU types share."""
