"""The truth in memory: what is in a cell, what may happen to it, and how it looks from outside."""
