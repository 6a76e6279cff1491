"""Signing in as an owner or reviewer without a link: at an OpenID provider, or by a proxy that one trusts."""
