"""``fauxmaster``: a copy of a cell, its past, and what would be if. Nothing here reaches the cell itself."""
