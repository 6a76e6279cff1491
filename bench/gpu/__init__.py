"""Measurements on one GPU: `python -m bench gpu`, on random weights of real shapes made on the device."""
