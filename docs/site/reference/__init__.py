"""The reference, from the code: one module for each kind of page. Each has `pages() -> {path: text}`."""
