"""Which jobs a policy may see: dependencies, quotas of queues, fair shares between them, and what users put on hold."""
