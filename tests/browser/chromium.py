"""A Chromium for the browser tests: where it is, and (run as a script) how it gets there.

Debian's own package is preferred, because it brings the libraries it needs and is updated with the system; it takes
root, or sudo without a password. Elsewhere Playwright downloads one. Without either the browser tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("chromium-headless-shell", "chromium")
"""Debian's packages, whose programs have the same names. The first is Chromium without a window, and takes half of the
processor time of the second for the browser tests (35 and 75 s)."""

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find() -> str | None:
    """The path of a Chromium that is installed: one of Debian's, or Playwright's own."""
    return next(filter(None, map(shutil.which, PACKAGES)), None) or _playwrights()


def install() -> bool:
    """Get one; False when neither way works."""
    return _from_debian() or _run(sys.executable, "-m", "playwright", "install", "chromium")


def _playwrights() -> str | None:
    """The Chromium that Playwright has downloaded. Asked in a process of its own: Playwright is a program of Node,
    which does not start where a library of the system is missing (libatomic, on a small Debian)."""
    asked = [sys.executable, "-c", _PATH]
    done = subprocess.run(asked, capture_output=True, text=True, errors="replace")
    path = done.stdout.strip()
    if done.returncode != 0:
        print(f"Playwright does not start: {done.stderr.strip().splitlines()[0]}", file=sys.stderr)
        return None
    return path if Path(path).exists() else None


_PATH = """
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)
"""


def _from_debian() -> bool:
    if not Path("/etc/debian_version").exists() or "ID=debian" not in Path("/etc/os-release").read_text().split():
        return False
    if os.geteuid() == 0:
        root: list[str] = []
    elif shutil.which("sudo") and _run("sudo", "-n", "true"):
        root = ["sudo", "-n"]
    else:
        return False
    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    return _run(*root, "apt-get", "update", "-qq") and any(_run(*root, *install, name) for name in PACKAGES)


def _run(*words: str) -> bool:
    """Whether a command succeeds; what it prints is shown only when it does not."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        print(f"{' '.join(words)}: {done.stdout.strip()[-2000:]}", file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    if not find():
        print("getting a Chromium for the browser tests ...", flush=True)
        if not install():
            print("No Chromium: the browser tests will be skipped.", file=sys.stderr)
