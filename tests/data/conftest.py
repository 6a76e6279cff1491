"""Property tests here write files: how long one example takes says nothing."""

from hypothesis import settings

settings.register_profile("files", deadline=None)
settings.load_profile("files")
