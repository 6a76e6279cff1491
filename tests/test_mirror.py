"""Tests lie in the same tree as what they test.

`tests/<folder>/test_<name>.py` tests the module (or the folder of modules) `tutelage/<folder>/<name>`, so whoever opens
a module knows where its tests are, and the other way round. Two kinds of test have no module of their own:

- Tests of a subject of one folder, which several modules make up together. SUBJECTS names each, and why.
- Tests of what the whole package promises. They lie in SPECIAL folders, beside those that mirror the package.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tutelage

PACKAGE = Path(tutelage.__file__).parent
TESTS = Path(__file__).parent

SPECIAL = {
    "browser": "pages in a real browser, whichever room draws them",
    "compatibility": "what earlier versions wrote",
    "examples": "the single files in examples/, which lie outside the package",
    "fixtures": "what earlier versions wrote, as archives; it holds no tests",
    "laws": "theorems about policy gradients, by enumeration, across core and algorithms",
    "learn": "that every recipe and every preference loss learns, through the real loop",
    "peers": "numbers that other libraries computed",
}
"""Folders that mirror no room of the package."""

SUBJECTS = {
    "test_demo.py": "the whole loop, as a new user runs it",
    "test_docs_python.py": "the page about Python, which runs as it stands",
    "test_import_time.py": "what importing the package costs",
    "test_layers.py": "who may import whom",
    "test_mirror.py": "the rule in this file",
    "algorithms/test_names.py": "recipes by name: the registry, changes by name, refusals, the table",
    "algorithms/test_pages.py": "the documentation of all algorithms",
    "commands/test_bad_input.py": "mistakes on the command line, of every verb",
    "commands/test_collect_models.py": "models beside people: three verbs together",
    "commands/test_collect_reward.py": "from a study to a reward model: two verbs together",
    "commands/test_end_to_end.py": "every verb, one after the other",
    "commands/test_learning_verbs.py": "what dpo and rejection have in common",
    "commands/test_memory_settings.py": "the settings of memory and precision, of several verbs",
    "commands/test_resume.py": "interrupted runs, of every verb that trains",
    "engines/test_engines_agree.py": "every engine against the reference engine",
    "lab/test_experiments.py": "every experiment in its smallest form",
    "lab/test_findings.py": "the sentences of every experiment",
    "people/test_crowd.py": "fifty raters at once, through processes",
    "people/test_faults.py": "crashes, full disks, locks",
    "people/test_layout.py": "where SQL may stand",
    "people/test_load.py": "what may not grow with the study",
    "people/web/test_access.py": "every route with every role",
    "people/web/test_headers_and_files.py": "what every answer of the site carries",
    "people/web/test_serving.py": "the application as a process",
    "people/web/test_wheel.py": "what the wheel holds",
    "report/test_report_browser.py": "the report in a browser",
    "train/test_every_recipe.py": "every recipe through the loop on a transformer",
    "train/test_exact_kl.py": "the exact KL, from whole distributions to the penalty in the loop",
    "train/test_invariance.py": "what must not matter, in every loop",
    "train/test_no_setting_is_inert.py": "every setting of a recipe through the loop",
    "train/test_out_of_memory.py": "running out of memory, in every loop",
    "train/test_preferences.py": "preference losses on transformers: losses, loop and data together",
    "workflows/test_python_api.py": "what `import tutelage` offers",
    "workflows/test_trainings.py": "workflows that train: silent, resumable, the same run as the verb's",
}
"""Tests of a subject, by their path, with what the subject is."""

MISPLACED: dict[str, str] = {
    "core/test_values_and_shaping.py": "core/test_shaping.py",
    "lab/test_rewards_and_means.py": "lab/test_measuring.py",
    "models/test_policy_scores.py": "models/test_policy.py",
    "report/test_report_answers.py": "report/test_answers.py",
    "report/test_report_charts.py": "report/test_charts.py",
    "report/test_report_page.py": "report/test_page.py",
    "report/test_report_scales.py": "report/test_scales.py",
    "report/test_report_watch.py": "report/test_watch.py",
    "rollout/test_samplers.py": "rollout/test_sampler.py",
    "simulate/test_gold_utility.py": "simulate/test_gold.py",
    "simulate/test_simulated_raters.py": "simulate/test_raters.py",
    "train/test_fit.py": "train/supervised/test_fit.py",
    "train/test_improve.py": "train/rl/test_improve.py",
    "train/test_minibatches.py": "train/rl/test_updates.py",
    "train/test_mismatch.py": "train/rl/test_mismatch.py",
    "train/test_natural_step.py": "train/rl/test_natural_step.py",
    "train/test_own_answers.py": "train/supervised/test_own_answers.py",
    "train/test_profiling.py": "train/run/test_profiling.py",
    "train/test_progress.py": "train/run/test_progress.py",
    "train/test_rollouts.py": "train/rl/test_rollouts.py",
    "train/test_trackers.py": "train/run/test_trackers.py",
}
"""Tests that lie elsewhere than the rule says, with their place by the rule. This table only ever gets shorter."""


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
    if subject_module(path, package) is not None or path in SUBJECTS or path in MISPLACED:
        return ""
    places = " or ".join(namesakes(path, package))
    there = f"the module of that name has its test at {places}" if places else "no module has that name"
    return f"tests/{path} mirrors no module: {there}. Name it after what it tests, or add it to SUBJECTS with a reason."


@pytest.mark.parametrize("path", list(files_of_tests(TESTS)))
def test_each_test_mirrors_a_module_or_has_a_reason_not_to(path: str) -> None:
    assert fault(path, PACKAGE) == ""


def test_each_folder_of_tests_is_one_of_the_package_or_special() -> None:
    folders = {file.parent.relative_to(TESTS) for file in TESTS.rglob("*.py")}
    unknown = {
        folder.as_posix()
        for folder in folders
        if not (PACKAGE / folder).is_dir() and folder.parts[0] not in SPECIAL
    }
    assert unknown == set()


def test_a_special_folder_has_no_namesake_in_the_package() -> None:
    assert [name for name in SPECIAL if (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("table", [SUBJECTS, MISPLACED], ids=["subjects", "misplaced"])
def test_the_tables_name_only_tests_that_need_it(table: dict[str, str]) -> None:
    files = set(files_of_tests(TESTS))
    assert [path for path in table if path not in files or subject_module(path, PACKAGE)] == []


def test_a_misplaced_test_has_a_place_to_go_to() -> None:
    assert [place for place in MISPLACED.values() if subject_module(place, PACKAGE) is None] == []


def test_the_rule_sees_names_and_places(tmp_path: Path) -> None:
    (tmp_path / "core" / "kinds").mkdir(parents=True)
    for module in ("core/kl.py", "core/kinds/__init__.py", "core/kinds/pair.py"):
        (tmp_path / module).touch()
    for right in ("core/test_kl.py", "core/test_kinds.py", "core/kinds/test_pair.py"):
        assert fault(right, tmp_path) == ""
    assert "no module has that name" in fault("core/test_divergence.py", tmp_path)
    assert "core/kinds/test_pair.py" in fault("core/test_pair.py", tmp_path)
    assert "core/test_kl.py" in fault("data/test_kl.py", tmp_path)
