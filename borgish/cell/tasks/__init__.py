"""Tasks beyond their states: allocs they run in, leases of exclusive ones, those that fail."""
