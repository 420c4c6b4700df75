"""What starts, watches and ends programs: plain processes, or containers of a docker engine."""
