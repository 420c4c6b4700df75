"""Who may do what in a cell, and the secrets of those who may."""
