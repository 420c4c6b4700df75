"""Applications: jobs that are applied as one, in which order they start, and whose field is whose."""
