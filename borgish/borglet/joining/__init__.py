"""How a machine comes into a cell, and proves later that it is the same."""
