"""The command line, with commands made for the test and with the real ones."""

import ast
import dataclasses
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from offenders import for_each
from tiers import long_except

import tutelage.commands
from tutelage.base.config import Checkpoints, Lora, Model, Optimiser, Sampling, to_mapping
from tutelage.base.config.flags import settings_below
from tutelage.base.config.hints import field_texts
from tutelage.commands import line as cli
from tutelage.commands import table
from tutelage.commands.completion import settings_by_command
from tutelage.commands.table import Command, find
from tutelage.people.operations import AMENDMENTS, GRANTS, IMPORTS

COMMAND = '''
import errno
from dataclasses import dataclass, field
from tutelage.base.config import Lora, Model, Optimiser
from tutelage.base.errors import TutelageError

@dataclass(frozen=True)
class PretendSettings:
    """Pretend to train."""

    model: Model
    """The model."""
    out: str = "runs/pretend"
    """The folder."""
    limit: int | None = None
    """Rows at most."""
    resume: bool = False
    """Go on."""
    names: tuple[str, ...] = ()
    """Names."""
    max_new_tokens: int = 64
    """Length."""
    lora: Lora = Lora()
    """Adapters."""
    optimiser: Optimiser = field(default_factory=lambda: Optimiser(lr=3e-6))
    """The optimiser."""

    def __post_init__(self) -> None:
        if self.limit == 13:
            raise TutelageError("limit is 13, which brings bad luck: take 12 or 14.")

def main(settings: PretendSettings) -> int:
    if settings.out == "fail":
        raise TutelageError("The folder fail is no good.")
    if settings.out == "interrupt":
        raise KeyboardInterrupt
    if settings.out == "socket":
        raise BrokenPipeError("the other side hung up")
    if settings.out == "locked":
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/runs")
    if settings.out == "full":
        raise OSError(errno.ENOSPC, "No space left on device")
    if settings.out == "taken":
        raise FileExistsError(errno.EEXIST, "File exists", "taken/run")
    if len(settings.out) > 4096:
        raise OSError(errno.ENAMETOOLONG, "File name too long", settings.out)
    if settings.out == "gone":
        raise FileNotFoundError(errno.ENOENT, "No such file", "of ours")
    if settings.out == "crash":
        raise ZeroDivisionError("a defect")
    main.got = settings
    return 3
'''


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a command `pretend` that exists for one test."""
    (tmp_path / "pretend.py").write_text(COMMAND)
    monkeypatch.setattr(tutelage.commands, "__path__", [*tutelage.commands.__path__, str(tmp_path)])
    command = Command(name="pretend", group="train", help="a command", examples=("--model tiny",))
    monkeypatch.setattr(table, "COMMANDS", (command,))
    monkeypatch.delitem(sys.modules, "tutelage.commands.pretend", raising=False)

    importlib.invalidate_caches()
    yield importlib.import_module("tutelage.commands.pretend")
    sys.modules.pop("tutelage.commands.pretend", None)


def run(words: str) -> int:
    """The exit status of `tutelage <words>`."""
    try:
        return cli.main(words.split())
    except SystemExit as stop:
        return int(stop.code or 0)


def settings(module: Any, words: str) -> dict[str, Any]:
    assert run(f"pretend {words}") == 3
    return to_mapping(module.main.got)


def test_flags_reach_the_settings(pretend: Any) -> None:
    got = settings(
        pretend, "--model.path tiny --lora.rank 16 --lora.alpha 8 --max-new-tokens 9 --resume --names a b --limit 5"
    )
    assert got["model"] == {"path": "tiny", "dtype": "float32", "device": "auto", "engine": "auto"}
    assert got["lora"] == {"rank": 16, "alpha": 8.0, "dropout": 0.0, "targets": "auto"}
    assert (got["max_new_tokens"], got["resume"], got["names"], got["limit"]) == (9, True, ["a", "b"], 5)
    assert got["optimiser"]["lr"] == 3e-6  # the default of the command, not of the piece


def test_short_forms_stand_for_the_group(pretend: Any) -> None:
    got = settings(pretend, "--model tiny --dtype=bf16 --device cpu --engine plain")
    assert got["model"] == {"path": "tiny", "dtype": "bf16", "device": "cpu", "engine": "plain"}
    assert settings(pretend, "--model tiny --model.engine=cpu")["model"]["engine"] == "cpu"


def test_a_boolean_can_be_switched_off(pretend: Any, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("resume = true")
    assert settings(pretend, f"--model m --config {config}")["resume"] is True
    assert settings(pretend, f"--model m --config={config} --no-resume")["resume"] is False


def test_flags_beat_the_file_and_the_file_beats_the_defaults(pretend: Any, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('limit = 4\nmax_new_tokens = 5\n[model]\npath = "filed"\n[lora]\nalpha = 64\n')
    got = settings(pretend, f"--config {config} --lora.rank 2 --limit 6")
    assert (got["limit"], got["max_new_tokens"], got["model"]["path"]) == (6, 5, "filed")
    assert (got["lora"]["rank"], got["lora"]["alpha"]) == (2, 64.0)
    assert settings(pretend, f"--config {config} --lora.rank 2 --limit None")["limit"] is None


def test_the_config_of_a_run_repeats_it(pretend: Any, tmp_path: Path) -> None:
    import json

    once = settings(pretend, "--model tiny --lora.rank 4 --optimiser.betas 0.8 0.9 --names a")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "tutelage-run/1", "settings": once, "versions": {}}))
    assert settings(pretend, f"--config {config}") == once


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretned --model x", "There is no command 'pretned'; did you mean 'pretend'?"),
        ("absent", "There is no command 'absent'."),
        ("--hlep", "There is no command '--hlep'"),
        ("pretend --model x --limit 13", "error: limit is 13, which brings bad luck: take 12 or 14."),
        ("pretend --model x --out fail", "error: The folder fail is no good."),
        ("pretend --model x --lora.alpha 3", "lora.rank is 0"),
        ("pretend --model x --config", "--config needs the name of a TOML file"),
        ("pretend --config --model x", "--config needs the name of a TOML file"),
        ("pretend --config a.toml --config b.toml", "--config is given twice, with a.toml and b.toml"),
        ("pretend --config nowhere.toml", "Cannot read the settings file nowhere.toml"),
        ("pretend --model x --lora.rnak 3", "--lora.rank"),
        ("pretend --model x --limt 3", "--limit"),
        ("pretend --out y", "--model.path"),
        ("pretend --model x --max-new-tokens many", "many"),
        ("pretend --model x --dtype float16", "bf16"),
    ],
)
def test_a_mistake_is_told_on_stderr_with_status_2(
    pretend: Any, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_a_key_of_the_file_that_is_unknown_is_named(
    pretend: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[lora]\nrnk = 4\n")
    assert run(f"pretend --model x --config {config}") == 2
    assert f"error: {config}: unknown setting 'lora.rnk'; did you mean 'rank'?" in capsys.readouterr().err


def test_ctrl_c_is_130_and_a_defect_keeps_its_traceback(pretend: Any) -> None:
    assert run("pretend --model x --out interrupt") == 130
    with pytest.raises(ZeroDivisionError):
        run("pretend --model x --out crash")


@pytest.mark.parametrize(
    "words",
    long_except(["--help", "sft --help"], ["--help", "recipes", "collect --help", "completion bash", "sft --help"]),
)
@pytest.mark.parametrize("options", [["-m"], ["-u", "-m"]], ids=["buffered", "unbuffered"])
def test_a_reader_that_leaves_is_no_error(options: list[str], words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, *options, "tutelage", *words.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env={"PYTHONUNBUFFERED": ""})
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("locked", "error: /etc/runs: Permission denied. Give another path, "),
        ("taken", "error: --out: taken/run: File exists. A file is where a folder is needed"),
        ("x" * 5000, f"error: --out: {'x' * 60}… (5,000 characters): File name too long. "),
        ("full", "error: No space left on device. Free space on that disk, "),
    ],
)
def test_a_place_that_cannot_be_written_is_told_in_a_sentence(
    pretend: Any, capsys: pytest.CaptureFixture[str], out: str, told: str
) -> None:
    assert run(f"pretend --model x --out {out}") == 2
    assert capsys.readouterr().err.startswith(told)


def test_a_file_of_ours_that_is_missing_is_a_defect(pretend: Any) -> None:
    with pytest.raises(FileNotFoundError):
        run("pretend --model x --out gone")


def test_a_terminal_without_the_letters_shows_what_it_can() -> None:
    """Of a locale with another encoding: what is printed has letters such as β, what is given may have any."""
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "tutelage"]
    shown = subprocess.run([*command, "recipes"], capture_output=True, env=ascii_only)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"?" in shown.stdout
    given = subprocess.run([*command, "report", "läufe".encode()], capture_output=True, text=True, env=ascii_only)
    assert given.returncode == 2
    assert "'l\\xe4ufe' has characters outside the encoding of this terminal, ascii" in given.stderr


def test_a_connection_that_breaks_is_a_defect_like_any_other(pretend: Any) -> None:
    with pytest.raises(BrokenPipeError):
        run("pretend --model x --out socket")


@pytest.mark.parametrize(
    ("command", "required"), [("improve", ["--out", "--model", "--prompts"]), ("serve", ["--model"]), ("demo", [])]
)
def test_help_begins_with_what_is_required(
    command: str, required: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(f"{command} --help") == 0
    page = capsys.readouterr().out
    named = re.search(r"^Required: (.*)\.$", page, re.MULTILINE)
    assert (named[1].split(", ") if named else []) == required
    outside = [flag for flag in required if flag != "--model"]  # that is in the box of its section
    assert re.findall(r"^\W*?(--[a-z][\w.-]*)", page.partition("--help")[2], re.MULTILINE)[: len(outside)] == outside
    (tmp_path / "c.toml").write_text('out = "runs/x"\nprompts = "p.jsonl"\n')
    if command == "improve":
        run(f"improve --config {tmp_path / 'c.toml'} --help")
        assert "Required: --model.\n" in capsys.readouterr().out


@for_each(list(settings_by_command().items()))
def test_help_has_no_line_breaks_of_the_source(
    command: tuple[str, ...],
    classes: tuple[type[Any], ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = classes[0]
    monkeypatch.setenv("COLUMNS", "2000")
    assert run(" ".join([*command, "--help"])) == 0
    page = capsys.readouterr().out
    texts = {field.key: field_texts(field.owner)[field.name] for field in settings_below(settings)}
    assert [key for key, text in texts.items() if text[:130] not in page] == []


@pytest.mark.parametrize("words", ["--help", "-h", "help"])
def test_help_lists_the_commands_that_are_there(pretend: Any, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "pretend" in out


def test_the_help_of_a_command_shows_its_settings(pretend: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pretend --help") == 0
    out = capsys.readouterr().out
    for text in ("Pretend to train.", "--max-new-tokens", "--lora.rank", "--no-resume", "--config FILE", "3e-06"):
        assert text in out
    assert out.endswith("\n\nexamples:\n  tutelage pretend --model tiny\n\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tutelage {tutelage.__version__}\n"


def real_commands() -> list[str]:
    return [command.name for command in table.COMMANDS]


def test_every_module_with_settings_is_in_the_table() -> None:
    folder = Path(tutelage.commands.__file__).parent
    folders = {path.parent.name for path in folder.glob("*/settings.py")}
    files = {path.stem for path in folder.glob("*.py") if "\ndef main(settings" in path.read_text(encoding="utf-8")}
    assert folders | files <= {find(name).module.rpartition(".")[2] for name in real_commands()}


HELP = """
    import json, os, resource, sys
    def used():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime
    import typeguard, tyro
    libraries = used()
    for name in sys.argv[1:]:
        if os.fork():
            os.wait()
            continue
        from tutelage.commands.line import main
        try:
            status = main([name, "--help"])
        except SystemExit as end:
            status = end.code
        print("\\n", json.dumps([name, status, libraries, libraries + used(), list(sys.modules)]), flush=True)
        os._exit(0)
"""
"""Each command in a process that has imported the libraries of its flags alone."""


def test_every_command_answers_for_help_without_torch() -> None:
    """Half a second; on a slower machine, twice the time that the libraries of the flags take there."""
    names, tries = set(real_commands()), list[str]()
    for _ in range(5):  # others on the machine can only add to it
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(HELP), *sorted(names)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(" [")]
        assert {name for name, *_ in told} == names
        for name, status, libraries, total, modules in told:
            heavy = {"torch", "transformers", "peft", "datasets", "scipy", "sqlalchemy", "starlette"} & set(modules)
            assert (status, heavy) == (0, set()), name
            if total < max(0.5, 2 * libraries):
                names.remove(name)
            else:
                tries.append(f"{name}: {libraries} s of libraries, {total} s in all")
        if not names:
            return
    pytest.fail(f"--help takes too long: {tries}")


def all_settings() -> list[type]:
    """The settings of every command, subcommand and operation of a study."""
    commands = [find(name) for name in real_commands()]
    parts = [kind for one in commands for kind in one.subcommands.values()]
    classes = [one.settings for one in commands] + [one.settings for one in (*AMENDMENTS, *GRANTS, *IMPORTS)]
    written = (kind for kind in parts if hasattr(sys.modules[kind.__module__], kind.__name__))
    return [*classes, *written]  # the others are made from these


@for_each(all_settings())
def test_settings_are_frozen_and_documented(settings: Any) -> None:
    assert undocumented(settings) == []


def undocumented(cls: Any) -> list[str]:
    """What has no docstring in a settings class and its pieces, and the classes that can change.

    A piece is explained by the docstring of its class.
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    bare = [] if ast.get_docstring(tree) else [cls.__name__]
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        bare.append(f"{cls.__name__} is not frozen")
    settings = {field.name for field in dataclasses.fields(cls)}  # without what a class itself has
    pieces = {name: hint for name, hint in get_type_hints(cls).items() if dataclasses.is_dataclass(hint)}
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if isinstance(statement, ast.AnnAssign) and not documented:
            name = ast.unparse(statement.target)
            bare += [f"{cls.__name__}.{name}"] if name in settings - set(pieces) else []
    bases = [base for base in cls.__bases__ if dataclasses.is_dataclass(base)]
    return bare + [line for part in (*bases, *pieces.values()) for line in undocumented(part)]


@pytest.mark.parametrize("piece", [Model, Lora, Sampling, Optimiser, Checkpoints])
def test_the_shared_pieces_are_frozen_and_documented(piece: type) -> None:
    assert undocumented(piece) == []


def test_a_field_without_documentation_is_found(pretend: Any) -> None:
    @dataclasses.dataclass(frozen=True)
    class Bare:
        """Has a field that says nothing."""

        one: int = 0
        """Said."""
        two: int = 0

    assert undocumented(Bare) == ["Bare.two"]
    assert undocumented(pretend.PretendSettings) == []


@pytest.mark.parametrize(
    ("given", "polls"), [({}, cli.POLLS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")]
)
def test_threads_sleep_soon_unless_the_environment_says_otherwise(given, polls):
    code = (
        "import os, sys; from tutelage.commands.line import main; main(['--help']);"
        "assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=plain | given)
    assert done.stdout.splitlines()[-1] == polls
