"""Script that runs a Python program within limits. It imports nothing of the package, so that it starts at once.

    python isolation.py '{"folder": …, "seconds": …, …}'

Three processes: the keeper waits for the end of the program, of the time, or of its own input, which a caller closes to
stop it; the first process of a PID namespace, whose end is that of all processes in it; and the program, `main.py` of
the folder. The program sees a root of its own, in memory: the system's and Python's folders, read-only, and an empty
/tmp; it has no network, no privileges and, if the caller is root, a user id that nothing else has.

What the system does not permit is left out and reported: one JSON object a line on the file descriptor "report", with
"unlimited" (a list of texts), "started", "status" (of the program: negative for a signal), "stopped" ("time" or
"caller"), or "fault" (the program could not be started).
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

NEW_MOUNTS, NEW_IPC, NEW_USERS, NEW_PIDS, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
BIND, ALL_BELOW, PRIVATE, NO_SUID, DETACH = 0x1000, 0x4000, 0x40000, 2, 2
READ_ONLY, RECURSIVE = 1, 0x8000
MOUNT_SETATTR = 442
"""Number of the system call, on every architecture."""
NO_NEW_PRIVILEGES, SUBREAPER, DUMPABLE = 38, 36, 4
VISIBLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
"""Files and folders of the system that a program sees, beside those of Python."""
FIRST_USER = 1_000_000_000
"""User ids from here on, plus the keeper's process id, are used for programs of root."""
NOBODY = 65534


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns -1 on failure. Raises OSError; also where there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"no {name}")
    if function(*(one.encode() if isinstance(one, str) else one for one in arguments)) == -1:
        raise OSError(ctypes.get_errno(), name)


def write(report: int, **values: object) -> None:
    """Add a line to the report."""
    os.write(report, f"{json.dumps(values)}\n".encode())


def main() -> None:
    """The keeper: start the program, and end all of its processes in time."""
    limits = json.loads(sys.argv[1])
    report = limits["report"]
    os.set_inheritable(report, False)
    user = FIRST_USER + os.getpid() if os.geteuid() == 0 else 0
    user = new_process_ids(user, report)
    try:
        call("prctl", SUBREAPER, 1, 0, 0, 0)  # processes whose parent ended become children of this one
        call("prctl", DUMPABLE, 0, 0, 0, 0)  # its memory and files are closed to a program of the same user
    except OSError:
        write(report, unlimited=["processes that leave its group"])
    first = os.fork()
    if first == 0:
        try:
            first_process(limits, user, report)
        except BaseException as error:
            write(report, fault=f"{type(error).__name__}: {error}")
        os._exit(1)
    stopped = wait(first, limits["seconds"])
    if stopped:
        os.kill(first, signal.SIGKILL)
        write(report, stopped=stopped)
    end_children()


def new_process_ids(user: int, report: int) -> int:
    """Enter a PID namespace, within a user namespace unless privileged. Returns the user id for the program, 0 for that
    of the caller."""
    with suppress(OSError):
        call("unshare", NEW_PIDS)
        return user
    inside, outside = os.geteuid() or NOBODY, os.geteuid()
    groups = (os.getegid() or NOBODY, os.getegid())
    try:
        call("unshare", NEW_PIDS | NEW_USERS)
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{inside} {outside} 1"),
            ("gid_map", f"{groups[0]} {groups[1]} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
    except OSError:
        return user
    if user:
        write(report, unlimited=["the number of processes", "the user id"])
    return 0


def wait(child: int, seconds: float) -> str:
    """Wait for the end of a child. Returns why it must be stopped; empty if it has ended."""
    end = time.monotonic() + seconds
    try:
        watched = [0, os.pidfd_open(child)]
    except (AttributeError, OSError):
        watched = [0]
    while True:
        remaining = end - time.monotonic()
        if os.waitpid(child, os.WNOHANG)[0]:
            return ""
        if remaining <= 0:
            return "time"
        ready = select.select(watched, [], [], remaining if len(watched) == 2 else min(remaining, 0.02))[0]
        if 0 in ready and not os.read(0, 1):
            return "caller"


def end_children() -> None:
    """Kill children until there is none; those of a killed child become children of this process."""
    with suppress(ChildProcessError):
        while True:
            for process in processes():
                if parent(process) == os.getpid():
                    with suppress(OSError):
                        os.kill(int(process.rpartition("/")[2]), signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.001)


def processes() -> Iterator[str]:
    """Folders of all processes, where there is /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            yield f"/proc/{name}"


def parent(process: str) -> int:
    """Process id of the parent; 0 for a process that has ended."""
    try:
        with open(f"{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def own_tasks() -> int:
    """Number of threads of all processes of this user."""
    count = 0
    for process in processes():
        with suppress(OSError):
            if os.stat(process).st_uid == os.getuid():
                count += len(os.listdir(f"{process}/task"))
    return count


def first_process(limits: dict[str, Any], user: int, report: int) -> None:
    """Close off network and files, start the program, and report its status."""
    folder = limits["folder"]
    with open(os.path.join(folder, "main.py"), "rb") as file:
        source = file.read()
    unlimited = []
    try:
        call("unshare", NEW_NETWORK | NEW_IPC)
    except OSError:
        unlimited.append("the network")
    try:
        enter_root(os.path.join(folder, "root"), limits["prefixes"], limits["disk"])
        folder = "/tmp"
    except OSError:
        unlimited.append("files outside its folder")
    os.chdir(folder)
    with open("main.py", "wb") as file:
        file.write(source)
    program = os.fork()
    if program == 0:
        try:
            unlimited += restrict(limits, user, folder)
            write(report, started=True, unlimited=unlimited)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execve(limits["command"][0], limits["command"], environment(folder))
        except BaseException as error:
            write(report, fault=f"{type(error).__name__}: {error}")
        os._exit(1)
    while True:
        child, status = os.wait()
        if child == program:
            write(report, status=os.waitstatus_to_exitcode(status))
            os._exit(0)


def enter_root(root: str, prefixes: list[str], size: int) -> None:
    """Make a file system in memory the root: with folders of the system, read-only, and /tmp. Raises OSError."""
    call("unshare", NEW_MOUNTS)
    call("mount", None, "/", None, PRIVATE | ALL_BELOW, None)
    os.makedirs(root)
    call("mount", "tmpfs", root, "tmpfs", NO_SUID, f"size={size},nr_inodes=20000,mode=755")
    roots: list[str] = []
    for path in sorted({*VISIBLE, *prefixes}, key=len):
        if os.path.exists(path) and not any(path == one or path.startswith(f"{one}/") for one in roots):
            bind(path, root + path)
            roots.append(path)
    for folder in ("/tmp", "/dev/shm"):
        os.makedirs(root + folder, exist_ok=True)
        os.chmod(root + folder, 0o1777)
    os.chdir(root)
    call("pivot_root", ".", ".")
    call("umount2", ".", DETACH)


def bind(path: str, target: str) -> None:
    """Show a file or folder at `target`, read-only. Symbolic links are copied."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT))
    call("mount", path, target, None, BIND | ALL_BELOW, None)
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID, 0, 0, 0)
    call("syscall", MOUNT_SETATTR, -100, target, RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes))


def restrict(limits: dict[str, Any], user: int, folder: str) -> list[str]:
    """Limit this process and its children. Returns what could not be limited."""
    import resource

    processes, unlimited = limits["processes"], []
    if user:
        if folder != "/tmp":
            os.chown(folder, user, user)
        if not become(user, limits["command"][0]):
            unlimited += ["the number of processes", "the user id"]
    elif folder != "/tmp":
        processes += own_tasks()  # counted with all others of the user
    resource.setrlimit(resource.RLIMIT_CPU, (limits["computing"], limits["computing"] + 1))
    for what, name, most in (
        ("the memory", "RLIMIT_AS", limits["memory"]),
        ("the size of files", "RLIMIT_FSIZE", limits["disk"]),
        ("the number of processes", "RLIMIT_NPROC", processes),
        ("open files", "RLIMIT_NOFILE", 256),
        ("core dumps", "RLIMIT_CORE", 0),
    ):
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, ValueError, OSError):
            unlimited.append(what)
    try:
        call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    except OSError:
        unlimited.append("programs with the rights of other users")
    return unlimited


def become(user: int, interpreter: str) -> bool:
    """Take on a user id, without a way back. Returns whether it is permitted and Python can be read as this user."""
    try:
        os.seteuid(user)
        readable = all(os.access(path, os.R_OK, effective_ids=True) for path in (interpreter, os.__file__))
        os.seteuid(0)
        if readable:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
    except (OSError, AttributeError, NotImplementedError):
        return False
    return readable


def environment(folder: str) -> dict[str, str]:
    """All environment variables of the program. Of the caller's it has the path of libraries only."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    return {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **threads, **libraries}


if __name__ == "__main__":
    main()
