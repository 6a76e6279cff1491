"""Where answers come from when only their text is wanted: a model folder, an endpoint, or a script."""
