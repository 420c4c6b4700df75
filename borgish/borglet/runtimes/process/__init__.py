"""The runtime that runs tasks as programs of the machine, each with a shim."""
