"""Documentation page for an error: that of the module that raised it, or of the command."""

from types import TracebackType

from tutelage.base.errors import TutelageError
from tutelage.commands.table import ALIASES, COMMANDS, find

SITE = "https://github.com/tutelage/tutelage/blob/main/docs"
PAGES = {
    "tutelage.algorithms": "algorithms/README.md",
    "tutelage.commands.completion": "installation.md",
    "tutelage.base.config.sections": "algorithms/README.md",
    "tutelage.commands.collect": "collecting.md",
    "tutelage.commands.collect.connections": "collecting_api.md",
    "tutelage.commands.iterate": "collecting.md",
    "tutelage.commands.study": "collecting.md",
    "tutelage.commands.study_data": "collecting.md",
    "tutelage.commands.study_creation": "collecting.md",
    "tutelage.commands.watch": "collecting_api.md",
    "tutelage.data": "data.md",
    "tutelage.data.chat_endpoint": "rewards.md",
    "tutelage.data.llm_judge": "rewards.md",
    "tutelage.data.transport": "rewards.md",
    "tutelage.engines.ranks": "howto/several_gpus.md",
    "tutelage.engines.choose": "installation.md",
    "tutelage.engines.cpu.native": "installation.md",
    "tutelage.engines.gpu": "installation.md",
    "tutelage.demo.lab": "lab/README.md",
    "tutelage.models.gguf_reader": "installation.md",
    "tutelage.people": "collecting.md",
    "tutelage.people.recruitment": "howto/prolific.md",
    "tutelage.people.grants": "collecting_api.md",
    "tutelage.people.programs": "collecting_api.md",
    "tutelage.people.store.api_tokens": "collecting_api.md",
    "tutelage.people.store.webhooks": "collecting_api.md",
    "tutelage.engines.plans": "scale.md",
    "tutelage.report": "not_learning.md",
    "tutelage.rewards": "rewards.md",
    "tutelage.rollout.server": "servers.md",
    "tutelage.rollout.server.teacher_server": "distillation.md",
    "tutelage.rollout.serving": "serving.md",
    "tutelage.stats": "raters.md",
    "tutelage.train.run.folder": "reference/files.md",
    "tutelage.train.run.trackers": "installation.md",
    "tutelage.commands.distill": "distillation.md",
    "tutelage.commands.plan": "scale.md",
    "tutelage.commands.raters": "raters.md",
    "tutelage.commands.serve": "serving.md",
    "tutelage.commands.trust": "rewards.md",
    "tutelage.commands.trust_measurement": "rewards.md",
}
"""Pages by module that raises, or by a package that contains it."""


def page_about(error: TutelageError, command: str = "") -> str:
    """Return the address of the page that explains `error`, which ended `tutelage command`, or the command that prints
    help.

    The page is that of the error, else of the module that raised it, else of the command.
    """
    page = error.page or _page_of(_module_of(error.__traceback__))
    return f"{SITE}/{page}" if page else page_of_command(command)


def page_of_command(command: str) -> str:
    """Return the address of the page about a command; `tutelage COMMAND --help` if it has none, and `tutelage --help`
    for an unknown command."""
    name = ALIASES.get(command, command)
    if name not in (each.name for each in COMMANDS):
        return "tutelage --help"
    page = _page_of(find(name).module)
    return f"{SITE}/{page}" if page else f"tutelage {name} --help"


def _module_of(traceback: TracebackType | None) -> str:
    """Return the module of the innermost frame; "" for an error that was never raised."""
    module = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
    return module


def _page_of(module: str) -> str:
    while module:
        if module in PAGES:
            return PAGES[module]
        module = module.rpartition(".")[0]
    return ""
