"""One round of RLHF as stages with inputs, outputs and fingerprints: what is done is skipped, what is not goes on."""
