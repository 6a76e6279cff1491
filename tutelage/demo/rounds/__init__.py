"""RLHF rounds as resumable stages with inputs, outputs and fingerprints."""
