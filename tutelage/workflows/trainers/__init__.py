"""Runs of `improve` as the settings of other trainers."""
