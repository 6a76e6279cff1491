"""Browsers in a few words, from the header User-Agent, so that people tell their sessions apart."""

BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
"""Marks in the header and what they mean; the first that is found counts, because browsers claim to be older ones."""


def device_of(user_agent: str) -> str:
    """The browser and its system: Firefox on Linux. A program is named by its first word."""
    browser = next((name for mark, name in BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    first = "".join(letter for letter in user_agent.split("/")[0][:40] if letter.isprintable())
    known = " on ".join(filter(None, (browser or (first if not system else "a browser"), system)))
    return known or "unknown device"
