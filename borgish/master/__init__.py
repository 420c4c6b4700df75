"""The borgmaster: the turn that everything goes through, and the daemon around it."""
