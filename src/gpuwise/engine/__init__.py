"""Turns events into state and decisions into commands; the only place where state changes."""
