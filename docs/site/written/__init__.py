"""The pages that are written from the code, one module for each kind. Each has `pages() -> {path: text}`."""
