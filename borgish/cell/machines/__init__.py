"""Machines: how they come, go, are marked and drained, and which tasks may stay."""
