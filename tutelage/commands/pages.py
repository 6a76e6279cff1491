"""Which page of the documentation explains an error: the one about the room that raised it, or else about the verb."""

from types import TracebackType

from tutelage.base.errors import TutelageError
from tutelage.commands.table import ALIASES, COMMANDS

SITE = "https://github.com/tutelage/tutelage/blob/main/docs"
PAGES = {
    "tutelage.algorithms": "algorithms/README.md",
    "tutelage.commands.completion": "installation.md",
    "tutelage.base.config.pieces": "algorithms/README.md",
    "tutelage.commands.collecting": "collecting.md",
    "tutelage.commands.collecting.connecting": "collecting_api.md",
    "tutelage.commands.collecting.settings_programs": "collecting_api.md",
    "tutelage.commands.watch": "collecting_api.md",
    "tutelage.data": "data.md",
    "tutelage.data.endpoint": "rewards.md",
    "tutelage.data.judging": "rewards.md",
    "tutelage.data.paid_endpoint": "rewards.md",
    "tutelage.data.transport": "rewards.md",
    "tutelage.engines.ranks": "howto/several_gpus.md",
    "tutelage.engines.cpu.native": "installation.md",
    "tutelage.demo.lab": "lab/README.md",
    "tutelage.models.gguf_reader": "installation.md",
    "tutelage.people": "collecting.md",
    "tutelage.people.platforms": "howto/prolific.md",
    "tutelage.people.recruiting": "howto/prolific.md",
    "tutelage.people.programs": "collecting_api.md",
    "tutelage.people.store.tokens": "collecting_api.md",
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
    "tutelage.commands.distill.run": "distillation.md",
    "tutelage.commands.plan.run": "scale.md",
    "tutelage.commands.raters.run": "raters.md",
    "tutelage.commands.serve.run": "serving.md",
    "tutelage.commands.distill.settings": "distillation.md",
    "tutelage.commands.distill.teacher": "distillation.md",
    "tutelage.commands.trust": "rewards.md",
}
"""Pages by the module that raises, or by a package that holds it."""


def page_about(error: TutelageError, verb: str = "") -> str:
    """The address of the page that explains `error`, which ended `tutelage verb`.

    It is the page that the error names itself, or else the page of the module that raised it, or else that of the verb.
    """
    page = error.page or _page_of(_module_of(error.__traceback__))
    return f"{SITE}/{page}" if page else page_of_verb(verb)


def page_of_verb(verb: str) -> str:
    """The address of the page about a verb; of the list of verbs where there is no such verb."""
    verb = ALIASES.get(verb, verb)
    name = verb if any(verb == each.name for each in COMMANDS) else "README"
    return f"{SITE}/reference/cli/{name}.md"


def _module_of(traceback: TracebackType | None) -> str:
    """The module of the innermost frame; empty for an error that was never raised."""
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
