"""The use cases that need no running service: simulate, sweep, predict, fit."""
