"""Attempts: how they are launched and limited, their folders and messages, how they end, what is reported of them."""
