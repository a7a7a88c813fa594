"""Models by name: the libraries, Hugging Face configurations, and the user's own code."""
