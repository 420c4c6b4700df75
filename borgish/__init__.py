"""borgish: a cluster orchestrator in the mould of Google's Borg, as one process."""

__version__ = "0.1.0"
