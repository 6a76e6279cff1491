"""A Chromium for the browser tests: where it is, and (run as a script) how it gets there.

One without a window is preferred, which takes half of the processor time for these tests (35 and 75 s). Debian's own
package brings the libraries it needs and is updated with the system; it takes root, or sudo without a password.
Elsewhere Playwright downloads one. Without either the browser tests are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("chromium-headless-shell", "chromium")
"""Debian's packages, whose programs have the same names. The first is Chromium without a window."""

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--in-process-gpu",
    "--process-per-site",
    "--js-flags=--no-opt",
)
"""The last three take a quarter of the processor time from short visits: fewer processes to start, and no script runs
for so long that optimising it pays."""


def find() -> str | None:
    """The path of a Chromium that is installed: one of Debian's, or Playwright's own."""
    return next(filter(None, map(shutil.which, PACKAGES)), None) or _playwrights()


def install() -> bool:
    """Get one; False when neither way works and there is none."""
    return _from_debian() or find() is not None or _run(*PLAYWRIGHT)


PLAYWRIGHT = (sys.executable, "-m", "playwright", "install", "chromium", "--only-shell")


def _playwrights() -> str | None:
    """The Chromium without a window that Playwright has downloaded. Asked in a process of its own: Playwright is a
    program of Node, which does not start where a library of the system is missing (libatomic, on a small Debian)."""
    done = subprocess.run([*PLAYWRIGHT, "--dry-run"], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        print(f"Playwright does not start: {done.stderr.strip().splitlines()[0]}", file=sys.stderr)
        return None
    (place, *_) = re.findall(r"Install location: +(.*)", done.stdout)
    programs = (path for name in ("chrome-headless-shell", "headless_shell") for path in Path(place).glob(f"*/{name}*"))
    return next((str(path) for path in programs if os.access(path, os.X_OK)), None)


def _from_debian() -> bool:
    if not Path("/etc/debian_version").exists() or "ID=debian" not in Path("/etc/os-release").read_text().split():
        return False
    if os.geteuid() == 0:
        root: list[str] = []
    elif shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
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
    if find() in (None, shutil.which("chromium")):  # that has a window
        print("getting a Chromium for the browser tests ...", flush=True)
        if not install():
            print("No Chromium: the browser tests will be skipped.", file=sys.stderr)
