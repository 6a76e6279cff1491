"""Help answers at once, because nothing heavy is imported for it."""

import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "transformers", "peft", "datasets", "numpy", "tyro", "rich", "sqlalchemy", "starlette")


def test_help_answers_in_half_a_second() -> None:
    times = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "tutelage", "--help"], check=True, capture_output=True)
        times.append(time.monotonic() - began)
    assert statistics.median(times) < 0.5


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tutelage.cli import main; main(['--help']);"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
