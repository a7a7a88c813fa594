"""Notifications of ends of jobs: which addresses may be notified, what is said, and how it is sent."""
