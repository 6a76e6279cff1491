"""What the commands of `tutelage collect` do."""
