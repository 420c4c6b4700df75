"""The borgmaster (Kubernetes' control plane): the turn that everything goes through, and the daemon around
it."""
