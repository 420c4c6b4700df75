"""What of the documentation is made from the code: the reference, the man pages, and copies of the files that
pages link to."""
