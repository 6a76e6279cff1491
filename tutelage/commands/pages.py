"""Pages of the documentation, which travel with the package, and the page for an error: that of the module that raised
it, or of the command."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.commands.table import ALIASES, COMMANDS, find

INDEX = "README"
"""Name of the page of a folder."""
PAGES = {
    "tutelage.algorithms": "algorithms",
    "tutelage.commands.completion": "installation",
    "tutelage.base.config.sections": "algorithms",
    "tutelage.commands.annotation_folder": "howto/import_annotations",
    "tutelage.commands.annotation_import": "howto/import_annotations",
    "tutelage.commands.collect": "collecting",
    "tutelage.commands.collect.connections": "collecting_api",
    "tutelage.commands.iterate": "collecting",
    "tutelage.commands.study": "collecting",
    "tutelage.commands.study_data": "collecting",
    "tutelage.commands.study_creation": "collecting",
    "tutelage.commands.study_questions": "collecting",
    "tutelage.commands.watch": "collecting_api",
    "tutelage.data": "data",
    "tutelage.data.annotations": "howto/import_annotations",
    "tutelage.data.chat_endpoint": "rewards",
    "tutelage.data.llm_judge": "rewards",
    "tutelage.data.transport": "rewards",
    "tutelage.engines.ranks": "howto/several_gpus",
    "tutelage.engines.choose": "installation",
    "tutelage.engines.cpu.native": "installation",
    "tutelage.engines.gpu": "installation",
    "tutelage.demo.lab": "lab",
    "tutelage.models.gguf_reader": "installation",
    "tutelage.people": "collecting",
    "tutelage.people.recruitment": "howto/prolific",
    "tutelage.people.settings": "collecting_api",
    "tutelage.people.programs": "collecting_api",
    "tutelage.people.store.api_tokens": "collecting_api",
    "tutelage.people.store.webhooks": "collecting_api",
    "tutelage.engines.plans": "scale",
    "tutelage.report": "not_learning",
    "tutelage.report.comparison": "howto/compare_runs",
    "tutelage.report.comparison_page": "howto/compare_runs",
    "tutelage.report.board": "howto/compare_runs",
    "tutelage.commands.board": "howto/compare_runs",
    "tutelage.commands.compare": "howto/compare_runs",
    "tutelage.commands.promote": "howto/promote",
    "tutelage.commands.serve.study_usage": "howto/learning_from_use",
    "tutelage.people.user_feedback": "howto/learning_from_use",
    "tutelage.stats.split_test": "howto/promote",
    "tutelage.rewards": "rewards",
    "tutelage.rollout.agent": "howto/agents",
    "tutelage.rollout.episode_endpoint": "howto/agents",
    "tutelage.rollout.environment": "howto/agents",
    "tutelage.rollout.episodes": "howto/agents",
    "tutelage.rollout.openenv_environment": "howto/agents",
    "tutelage.rollout.verifiers_environment": "howto/agents",
    "tutelage.rollout.server": "servers",
    "tutelage.rollout.tools": "howto/agents",
    "tutelage.rollout.server.teacher_server": "distillation",
    "tutelage.rollout.serving": "serving",
    "tutelage.stats": "raters",
    "tutelage.train.run.folder": "reference/files",
    "tutelage.train.run.trackers": "installation",
    "tutelage.commands.distill": "distillation",
    "tutelage.commands.plan": "scale",
    "tutelage.commands.raters": "raters",
    "tutelage.commands.serve": "serving",
    "tutelage.commands.trust": "rewards",
    "tutelage.commands.trust_measurement": "rewards",
}
"""Pages by module that raises, or by a package that contains it."""


def folder() -> Path:
    """Return the folder of the pages: in the package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def pages() -> Mapping[str, Path]:
    """Return the files of all pages by name: `data`, `howto/prolific`, and `lab` for lab/README.md."""
    root = folder()
    names = ((file.relative_to(root).with_suffix("").as_posix(), file) for file in sorted(root.rglob("*.md")))
    return {name.removesuffix(f"/{INDEX}"): file for name, file in names}


def page_named(name: str) -> Path:
    """Return the file of a page by its name, or by the end of one (`prolific` is howto/prolific).

    Raises TutelageError, with similar names, if there is no such page, or more than one.
    """
    paths = pages()
    word = name.removesuffix(".md").removesuffix(f"/{INDEX}").removeprefix("docs/").strip("/")
    if word in paths:
        return paths[word]
    ends = [each for each in paths if each.rpartition("/")[2] == word]
    if len(ends) == 1:
        return paths[ends[0]]
    near = ends or [each for each in paths if word in each.replace("/", "_").split("_")]
    known = dict.fromkeys([*paths, *(each.rpartition("/")[2] for each in paths)])
    guess = did_you_mean(word, known, meant=near, most=3)
    raise TutelageError(f"There is no page {name!r}{guess} `tutelage docs` lists all of them.")


def page_about(error: TutelageError, command: str = "") -> str:
    """Return the command that shows the page about `error`, which ended `tutelage command`, or that prints help.

    The page is that of the error, else of the module that raised it, else of the command.
    """
    page = error.page or _page_of(_module_of(error.__traceback__))
    return f"tutelage docs {page}" if page else page_of_command(command)


def page_of_command(command: str) -> str:
    """Return the command that shows the page about a command; `tutelage COMMAND --help` if it has none, and `tutelage
    --help` for an unknown command."""
    name = ALIASES.get(command, command)
    if name not in (each.name for each in COMMANDS):
        return "tutelage --help"
    page = _page_of(find(name).module)
    return f"tutelage docs {page}" if page else f"tutelage {name} --help"


def _module_of(traceback: TracebackType | None) -> str:
    """Return the module of the innermost frame, or of the innermost outside `base` if it has no page; "" for an error
    that was never raised."""
    modules = []
    while traceback is not None:
        modules.append(traceback.tb_frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next
    return next((name for name in reversed(modules) if _page_of(name) or not name.startswith("tutelage.base.")), "")


def _page_of(module: str) -> str:
    while module:
        if module in PAGES:
            return PAGES[module]
        module = module.rpartition(".")[0]
    return ""
