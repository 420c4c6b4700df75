"""What holds users and disruptions back: admission, quotas, budgets, the freeze."""
