"""How a cell looks from outside: pure functions from the state to the shapes of ``wire.api``.

One noun a file. Nothing here waits, writes, or reads a clock; who may see what is decided by the API.
"""
