"""Jobs that run on time."""
