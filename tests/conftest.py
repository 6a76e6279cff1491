"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("shared", deadline=None)  # a machine that others use too may be slow at any moment
settings.load_profile("shared")
