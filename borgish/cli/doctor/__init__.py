"""The checks of ``borgctl doctor``."""
