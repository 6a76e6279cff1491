"""Tutelage: reinforcement learning from human feedback, with the people in the loop."""

__version__ = "0.1.0"
