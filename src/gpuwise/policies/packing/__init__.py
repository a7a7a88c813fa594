"""What policies that put several jobs on a GPU share."""
