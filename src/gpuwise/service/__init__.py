"""The use cases, where parts are put together: simulate, sweep, reproduce."""
