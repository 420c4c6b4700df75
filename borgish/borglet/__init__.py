"""The agent on each machine: runs what its assignment says, and reports what it runs."""
