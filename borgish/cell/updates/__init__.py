"""How tasks that run become what they are to be: updates, restarts, handovers, rollbacks."""
