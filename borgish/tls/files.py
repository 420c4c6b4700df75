"""The names of a cell's certificates in the folders of its daemons."""

AUTHORITY_FILE = "authority.pem"
"""The authorities that are trusted, the one that signs first."""
MASTER_FILE = "master.pem"
"""A master's certificate, and its key."""
MACHINE_FILE = "machine.pem"
"""A machine's certificate, and its key."""
