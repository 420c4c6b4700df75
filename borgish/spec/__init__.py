"""What users ask for: job files read, checked, and brought into one canonical form."""
