"""A borgmaster on its host: settings, folders, programs it starts."""
