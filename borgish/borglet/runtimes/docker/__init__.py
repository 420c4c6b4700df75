"""The runtime that runs tasks in containers of a Docker engine."""
