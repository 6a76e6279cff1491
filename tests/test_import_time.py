"""The list of commands is shown at once: nothing heavy is imported for it. Help of a command is tested in test_line."""

import subprocess
import sys

HEAVY = ("torch", "transformers", "peft", "datasets", "numpy", "tyro", "rich", "sqlalchemy", "starlette")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tutelage.commands.line import main; main(['--help']);"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
