"""What judges a simulated cell: safety all the while, policy, liveness, and what is right at rest."""
