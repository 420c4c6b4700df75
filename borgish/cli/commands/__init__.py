"""The commands of borgctl, a module a noun; see ``borgctl`` for the table of them."""
