"""`tutelage collect`: a study in which people compare responses, from questions to preferences."""

from collections.abc import Callable, Mapping
from importlib import import_module

from tutelage.commands.collect.settings import SUBCOMMANDS
from tutelage.commands.collect.subcommands import SETTINGS
from tutelage.commands.study import CollectSettings

RUNNERS: Mapping[str, str] = {
    "init": "study_creation:make",
    "serve": "collect.server:serve",
    "invite": "collect.invites:invite",
    "status": "collect.status_table:tell",
    "export": "collect.transfer:write",
    "import": "collect.transfer:read",
    "simulate": "collect.crowd:simulate",
    "judge": "collect.judge:judge",
    "next": "collect.judge:choose",
    "payments": "collect.status_table:write_payments",
    "forget": "collect.erasure:forget_raters",
    **dict.fromkeys(SETTINGS, "collect.subcommands:amend"),
    "token": "collect.connections:manage_tokens",
    "webhook": "collect.connections:manage_webhooks",
    "backup": "collect.transfer:back_up",
    "restore": "collect.transfer:restore",
}
"""Function of each subcommand, as module:function of `tutelage.commands`; imported when called."""


def main(settings: CollectSettings) -> int:
    """Run the subcommand of these settings."""
    name = next(name for name, kind in SUBCOMMANDS.items() if type(settings) is kind)
    module, _, function = RUNNERS[name].partition(":")
    run: Callable[[CollectSettings], int] = getattr(import_module(f"tutelage.commands.{module}"), function)
    return run(settings)
