"""Tests lie in the same tree as what they test.

`tests/<folder>/test_<name>.py` tests the module (or the folder of modules) `tutelage/<folder>/<name>`, so whoever opens
a module knows where its tests are, and the other way round. Two kinds of test have no module of their own:

- Tests of a subject of one folder, which several modules make up together. SUBJECTS names each, and why.
- Tests of what the whole package promises. They lie in SPECIAL folders, beside those that mirror the package.
"""

from collections.abc import Iterator
from pathlib import Path

import tutelage

PACKAGE = Path(tutelage.__file__).parent
TESTS = Path(__file__).parent

SPECIAL = {
    "browser": "pages in a real browser, whichever room draws them",
    "compatibility": "what earlier releases wrote",
    "docs": "the pages of the documentation: their commands, and those written from the code",
    "examples": "the single files in examples/, which lie outside the package",
    "fixtures": "what each release wrote, as archives; it holds no tests",
    "laws": "theorems about policy gradients, by enumeration, across core and algorithms",
    "learn": "that every recipe and every preference loss learns, through the real loop",
    "peers": "numbers that other libraries computed",
    "real_openenv": "real servers of OpenEnv, in an environment of its own; `make test-openenv` runs them",
    "real_tools": "tools beside which ours runs: their own classes, in an environment of its own; `make test-tools`",
    "real_trackers": "the real wandb, trackio and MLflow, in an environment of their own; `make test-trackers`",
    "real_verifiers": "the real verifiers, in an environment of its own; `make test-verifiers` runs them",
    "real_vllm": "a real vLLM, in an environment of its own; `make test-vllm` runs them",
}
"""Folders that mirror no room of the package."""

SUBJECTS = {
    "test_deploy.py": "launch files and the image of the rating server, which lie outside the package",
    "test_docs_python.py": "the page about Python, which runs as it stands",
    "test_import_time.py": "what importing the package costs",
    "test_layers.py": "who may import whom",
    "test_mirror.py": "the rule in this file",
    "test_repository.py": "workflows, versions and metadata, which lie outside the package",
    "test_torch_index.py": "which build of torch the Makefile takes, by a script outside the package",
    "test_typechecks.py": "the annotations of tensors",
    "algorithms/test_names.py": "recipes by name: the registry, changes by name, refusals, the table",
    "algorithms/test_pages.py": "the documentation of all algorithms",
    "commands/test_bad_input.py": "mistakes on the command line, of every command",
    "commands/test_collect_live.py": "live conversations on the command line: several commands",
    "commands/test_collect_models.py": "models beside people: three commands together",
    "commands/test_collect_names.py": "names of raters in whatever leaves a study, and in what training makes of it",
    "commands/test_collect_people.py": "recruiting, paying and forgetting raters: several commands",
    "commands/test_collect_reward.py": "from a study to a reward model: two commands together",
    "commands/test_collect_server.py": "several studies, links, sign-in and backups on the command line",
    "commands/test_dry_run.py": "plans on the command line: the command plan and the flag of other commands",
    "commands/test_edges.py": "settings and data at their edges, of every command that trains or samples",
    "commands/test_end_to_end.py": "every command, one after the other",
    "commands/test_first_checks.py": "checks before the first step, of all commands that train",
    "commands/test_howto.py": "the how-to pages of the documentation, command by command: several commands",
    "commands/test_learning_commands.py": "what dpo and rejection have in common",
    "commands/test_memory_settings.py": "the settings of memory and precision, of several commands",
    "commands/test_resume.py": "interrupted runs, of every command that trains",
    "commands/test_own_rewards.py": "a function of completions as a reward, through every command",
    "commands/test_shown_commands.py": "the commands on all pages of the documentation: several commands",
    "engines/ranks/test_equality.py": "runs over several ranks against runs in one process",
    "engines/ranks/test_failures.py": "ranks that fail, are killed or are stopped",
    "engines/test_architectures.py": "every architecture of transformers against its own forward pass, on each engine",
    "engines/test_engines_agree.py": "the reference engine and the CPU engine, on every family of models",
    "demo/lab/test_experiments.py": "every experiment in its smallest form",
    "demo/lab/test_findings.py": "the sentences of every experiment",
    "people/test_crowd.py": "raters at once, through processes",
    "people/test_faults.py": "crashes, full disks, locks",
    "people/test_layout.py": "where SQL may stand",
    "people/test_load.py": "what may not grow with the study",
    "people/web/pages/test_consenting.py": "consent and forgetting: pages of raters and of owners together",
    "people/web/pages/test_correcting.py": "better responses and marked words: pages of raters and of owners together",
    "people/web/pages/test_importing_votes.py": "votes from a file: the page, the uploads and the import together",
    "people/web/pages/test_live_conversations.py": "live conversations: the rater's page, its streams and the models",
    "people/web/pages/test_visits_from_platforms.py": "visits from platforms: arrival, codes, places and payments",
    "people/web/pages/test_members.py": "owners, reviewers and their sessions: two pages, and what others show them",
    "people/web/test_access.py": "every route with every role",
    "people/web/test_fuzz.py": "requests that no page sends, to every route as every role",
    "people/web/test_every_surface.py": "an operation of a study on the command line, as a form and in the API",
    "people/web/test_headers_and_files.py": "what every answer of the site carries",
    "people/web/test_languages.py": "the language of every page, and of what programs read",
    "people/web/test_openid_provider.py": "sign-in at an OpenID provider, which needs an extra",
    "people/web/test_serving.py": "the application as a process",
    "people/web/test_statistics.py": "the statistics of the owner's pages, through the site",
    "people/web/test_wheel.py": "what the wheel holds",
    "report/test_faults_are_named.py": "training with a fault made on purpose, through workflows and report",
    "engines/plans/test_measured.py": "plans against measured steps and published figures",
    "rewards/test_page.py": "the page about rewards, which runs as it stands",
    "rollout/test_every_generator.py": "every generator against the protocol",
    "rollout/serving/test_rollout_client.py": "the server as a source of rollouts, with the client of another room",
    "rollout/serving/test_fuzz.py": "requests that no client should send, to every route",
    "train/test_every_recipe.py": "every recipe through the loop on a transformer",
    "train/test_exact_kl.py": "the exact KL, from whole distributions to the penalty in the loop",
    "train/test_host_waits.py": "how often the host waits for the device: rows, the plain engine and both loops",
    "train/test_invariance.py": "what must not matter, in every loop",
    "train/test_no_setting_is_inert.py": "every setting of a recipe through the loop",
    "train/test_out_of_memory.py": "running out of memory, in every loop",
    "train/test_server_rollouts.py": "the loop on servers that are stubs",
    "train/test_preferences.py": "preference losses on transformers: losses, loop and data together",
    "commands/evaluate/test_tasks.py": "tasks in an evaluation without the harness: settings, files, what is missing",
    "test_python_api.py": "what `import tutelage` offers",
    "commands/test_trainings.py": "commands that train: silent, resumable, the same run as the command's",
    "engines/cpu/test_sampler_and_trainer.py": "one log-probability of a token, whether it is sampled or scored",
    "train/rl/test_multi_turn.py": "episodes of several turns through the loop, its update and the command",
}
"""Tests of a subject, by their path, with what the subject is."""


def files_of_tests(root: Path) -> Iterator[str]:
    """The files of tests below `root`, as paths relative to it, without those of special folders."""
    for file in sorted(root.rglob("test_*.py")):
        path = file.relative_to(root)
        if path.parts[0] not in SPECIAL:
            yield path.as_posix()


def subject_module(path: str, package: Path) -> Path | None:
    """The module or folder of modules that the test at `path` mirrors; None where there is none."""
    file = package / Path(path).parent / Path(path).stem.removeprefix("test_")
    module = file.with_suffix(".py")
    return module if module.is_file() else file if (file / "__init__.py").is_file() else None


def namesakes(path: str, package: Path) -> list[str]:
    """Where a test with this name would lie by the rule."""
    name = Path(path).stem.removeprefix("test_")
    modules = (file.relative_to(package) for file in sorted(package.rglob(f"{name}.py")))
    return [module.with_name(f"test_{name}.py").as_posix() for module in modules]


def fault(path: str, package: Path) -> str:
    """What is wrong with the place or the name of a test; empty where nothing is."""
    if subject_module(path, package) is not None or path in SUBJECTS:
        return ""
    places = " or ".join(namesakes(path, package))
    there = f"the module of that name has its test at {places}" if places else "no module has that name"
    return f"tests/{path} mirrors no module: {there}. Name it after what it tests, or add it to SUBJECTS with a reason."


def test_each_test_mirrors_a_module_or_has_a_reason_not_to() -> None:
    assert [found for path in files_of_tests(TESTS) if (found := fault(path, PACKAGE))] == []


def test_each_folder_of_tests_is_one_of_the_package_or_special() -> None:
    folders = {file.parent.relative_to(TESTS) for file in TESTS.rglob("*.py")}
    unknown = {
        folder.as_posix() for folder in folders if not (PACKAGE / folder).is_dir() and folder.parts[0] not in SPECIAL
    }
    assert unknown == set()


def test_a_special_folder_has_no_namesake_in_the_package() -> None:
    assert [name for name in SPECIAL if (PACKAGE / name).exists()] == []


def test_the_table_names_only_tests_that_need_it() -> None:
    files = set(files_of_tests(TESTS))
    assert [path for path in SUBJECTS if path not in files or subject_module(path, PACKAGE)] == []


def test_no_two_files_of_tests_are_one_module_for_pytest() -> None:
    """Outside packages, the name of a file is that of its module, and pytest refuses the second."""
    seen: dict[tuple[str, ...], Path] = {}
    for file in sorted(TESTS.rglob("*.py")):
        folder = file.parent
        while (folder / "__init__.py").exists():
            folder = folder.parent
        name = file.relative_to(folder).parts
        if name[-1] != "conftest.py":
            assert seen.setdefault(name, file) == file


def test_the_rule_sees_names_and_places(tmp_path: Path) -> None:
    (tmp_path / "core" / "kinds").mkdir(parents=True)
    for module in ("core/kl.py", "core/kinds/__init__.py", "core/kinds/pair.py"):
        (tmp_path / module).touch()
    for right in ("core/test_kl.py", "core/test_kinds.py", "core/kinds/test_pair.py"):
        assert fault(right, tmp_path) == ""
    assert "no module has that name" in fault("core/test_divergence.py", tmp_path)
    assert "core/kinds/test_pair.py" in fault("core/test_pair.py", tmp_path)
    assert "core/test_kl.py" in fault("data/test_kl.py", tmp_path)
