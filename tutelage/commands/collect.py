"""`tutelage collect`: a study of people comparing answers, from the questions to the preferences."""

from collections.abc import Mapping
from importlib import import_module

from tutelage.commands.collecting import settings as of
from tutelage.commands.collecting import settings_machines as machines
from tutelage.commands.collecting import settings_making as making
from tutelage.commands.collecting import settings_moving as moving
from tutelage.commands.collecting import settings_people as people
from tutelage.commands.collecting import settings_programs as programs
from tutelage.commands.collecting import settings_serving as serving

CollectSettings = of.CollectSettings

SUBCOMMANDS: Mapping[str, type[CollectSettings]] = {
    "init": making.Init,
    "serve": serving.Serve,
    "invite": serving.Invite,
    "status": of.Status,
    "export": moving.Export,
    "import": moving.Import,
    "simulate": machines.Simulate,
    "judge": machines.Judge,
    "next": of.Next,
    "recruit": people.Recruit,
    "payments": people.Payments,
    "consent": people.Consent,
    "forget": people.Forget,
    "token": programs.Token,
    "webhook": programs.Webhook,
    "backup": serving.Backup,
    "restore": serving.Restore,
}

RUNNERS: Mapping[type[CollectSettings], str] = {
    making.Init: "making:make",
    serving.Serve: "serving:serve",
    serving.Invite: "inviting:invite",
    of.Status: "telling:tell",
    moving.Export: "moving:write",
    moving.Import: "moving:read",
    machines.Simulate: "simulating:simulate",
    machines.Judge: "judging:judge",
    of.Next: "choosing:choose",
    people.Recruit: "recruiting:recruit_raters",
    people.Payments: "recruiting:write_payments",
    people.Consent: "forgetting:ask",
    people.Forget: "forgetting:forget_raters",
    programs.Token: "connecting:manage_tokens",
    programs.Webhook: "connecting:manage_webhooks",
    serving.Backup: "keeping:back_up",
    serving.Restore: "keeping:restore",
}
"""The function that runs each command, as module:function of `commands.collecting`; loaded when it is called."""


def main(settings: CollectSettings) -> int:
    """Run the command that these settings belong to."""
    module, _, function = RUNNERS[type(settings)].partition(":")
    status: int = getattr(import_module(f"tutelage.commands.collecting.{module}"), function)(settings)
    return status
