"""Commands that run a service, or speak to a running one."""
