"""borgctl (Kubernetes' kubectl): what people type. Speaks to the master over its API only,
one noun a file."""
