"""The cell, live in a terminal: what to show (pure), how it looks (rich), and who owns the terminal."""
