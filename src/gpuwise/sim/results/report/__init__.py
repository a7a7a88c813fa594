"""The HTML report: its page, its tables, its charts."""
