"""The real master and the real borglets under a clock that we turn, with faults that we choose."""
