"""Which page of the documentation explains an error: the one about the room that raised it."""

from types import TracebackType

from tutelage.errors import TutelageError

SITE = "https://github.com/tutelage/tutelage/blob/main/docs"
PAGES = {
    "tutelage.algorithms": "algorithms/README.md",
    "tutelage.cli.completion": "installation.md",
    "tutelage.commands.collecting": "collecting.md",
    "tutelage.commands.collecting.connecting": "collecting_api.md",
    "tutelage.commands.collecting.settings_programs": "collecting_api.md",
    "tutelage.commands.watch": "collecting_api.md",
    "tutelage.data": "data.md",
    "tutelage.distributed": "howto/several_gpus.md",
    "tutelage.engines.cpu.native": "installation.md",
    "tutelage.people": "collecting.md",
    "tutelage.people.platforms": "howto/prolific.md",
    "tutelage.people.recruiting": "howto/prolific.md",
    "tutelage.people.programs": "collecting_api.md",
    "tutelage.people.store.tokens": "collecting_api.md",
    "tutelage.people.store.webhooks": "collecting_api.md",
    "tutelage.planning": "scale.md",
    "tutelage.report": "not_learning.md",
    "tutelage.rewards": "rewards.md",
    "tutelage.rollout.server": "servers.md",
    "tutelage.rollout.server.teacher": "distillation.md",
    "tutelage.serving": "serving.md",
    "tutelage.stats": "raters.md",
    "tutelage.workflows.distill": "distillation.md",
    "tutelage.workflows.plan": "scale.md",
    "tutelage.workflows.raters": "raters.md",
    "tutelage.workflows.serve": "serving.md",
    "tutelage.workflows.settings.distill": "distillation.md",
    "tutelage.workflows.teacher": "distillation.md",
}
"""Pages by the module that raises, or by a package that holds it."""


def page_about(error: TutelageError) -> str:
    """The address of the page that explains `error`; empty where no page does.

    It is the page that the error names itself, or else the page of the module that raised it.
    """
    page = error.page or _page_of(_module_of(error.__traceback__))
    return f"{SITE}/{page}" if page else ""


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
