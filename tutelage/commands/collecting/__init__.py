"""The commands of `tutelage collect`."""
