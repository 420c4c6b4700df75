"""Certificates of a cell: who signs them, who they name, and how connections are judged by them."""
