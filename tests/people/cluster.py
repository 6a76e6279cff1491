"""A throw-away PostgreSQL cluster on a Unix socket, where the server's programs are installed."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 300.0
"""Seconds for the server to come up: a machine that is busy with other things takes long."""


def programs() -> Path | None:
    """The folder with initdb and postgres, newest version first."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    return found[-1].parent if found else None


def unprivileged() -> dict[str, object]:
    """initdb refuses to run as root: arguments that make subprocess run as somebody else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {"user": 65534, "group": 65534, "extra_groups": []}


@contextmanager
def cluster(bin_folder: Path) -> Iterator[str]:
    """Make and start a cluster; yields the folder of its socket. Everything is gone afterwards."""
    who = unprivileged()
    home = tempfile.mkdtemp(prefix="tutelage-pg-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
    if who:
        os.chown(home, int(str(who["user"])), int(str(who["group"])))
    data = os.path.join(home, "data")
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "LC_ALL": "C", "HOME": home}
    common = {"env": environment, "cwd": home, **who}
    initialise = [str(bin_folder / "initdb"), "-D", data, "-U", "tutelage", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(initialise, check=True, capture_output=True, **common)  # type: ignore[call-overload]
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200", "-k", home]
    with open(os.path.join(home, "log"), "wb") as log:
        server = subprocess.Popen(  # type: ignore[call-overload]
            [str(bin_folder / "postgres"), "-D", data, *options], stdout=log, stderr=log, **common
        )
    try:
        _wait_until_ready(bin_folder, home, server)
        yield home
    finally:
        server.send_signal(signal.SIGINT)  # fast: whoever is still connected is let go
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(home, ignore_errors=True)


def _wait_until_ready(bin_folder: Path, home: str, server: "subprocess.Popen[bytes]") -> None:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        asked = [str(bin_folder / "pg_isready"), "-q", "-h", home]
        if subprocess.run(asked, check=False).returncode == 0:
            return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(Path(home, "log").read_text(errors="replace"))
