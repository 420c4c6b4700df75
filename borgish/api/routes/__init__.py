"""What is answered at which path, a module a noun."""
