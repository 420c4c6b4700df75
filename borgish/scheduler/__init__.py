"""Decides which pending task goes to which machine, and says why when none will do."""
