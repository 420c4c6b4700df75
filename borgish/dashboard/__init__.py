"""The cell, live in a terminal (Borg has Sigma, a web page): what to show (pure), how it looks (rich), and
who owns the terminal."""
