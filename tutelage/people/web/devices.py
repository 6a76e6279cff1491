"""Short names of browsers from the User-Agent header, shown in the list of sessions."""

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
"""Marks in the header and their names. The first match counts, because browsers also claim to be older ones."""


def device_of(user_agent: str) -> str:
    """Browser and system, "Firefox on Linux"; for other programs the first word of the header."""
    browser = next((name for mark, name in BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    first = "".join(letter for letter in user_agent.split("/")[0][:40] if letter.isprintable())
    words = " on ".join(filter(None, (browser or (first if not system else "a browser"), system)))
    return words or "unknown device"
