"""Where workflows find the key of an OpenAI-compatible endpoint."""

KEY = "TUTELAGE_ENDPOINT_KEY"
"""Environment variable that holds the key of an endpoint: a setting would end up in config.json."""
