"""Attempts of tasks: the table of their stages, what is kept of them, and what is reported. Pure."""
