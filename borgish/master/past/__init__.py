"""What a borgmaster keeps of its cell and tells of the past: checkpoints, history, archive, usage, audits."""
