"""The job file: how specifications are read from it and written to it."""
