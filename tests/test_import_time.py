"""Help answers at once, because nothing heavy is imported for it."""

import resource
import subprocess
import sys

HEAVY = ("torch", "transformers", "peft", "datasets", "numpy", "tyro", "rich", "sqlalchemy", "starlette")


def test_help_of_the_verb_with_most_settings_takes_half_a_second() -> None:
    """Half a second of the processor: the clock also measures what else the machine does."""
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "tutelage", "export", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used) < 0.5


def test_help_of_no_verb_imports_a_library_of_models() -> None:
    code = (
        "import sys; from tutelage.cli import main; from tutelage.cli.verbs import VERBS\n"
        "for verb in VERBS:\n"
        "    try: main([verb.name, '--help'])\n"
        "    except SystemExit: pass\n"
        "print('HEAVY', [n for n in ('torch', 'transformers', 'peft', 'datasets', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tutelage.cli import main; main(['--help']);"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
