"""Output of `tutelage serve`."""

import os

from tutelage.commands.serve.settings import PARENT, ServeSettings
from tutelage.commands.terminal import remarks


def main(settings: ServeSettings) -> int:
    """Serve until SIGTERM or ctrl-C."""
    if os.environ.get(PARENT):
        from tutelage.rollout.serving.policy_server import end_with_parent

        end_with_parent()  # before slow imports
    from tutelage.commands.serve.run import serve

    with remarks(quiet=False):
        server = serve(settings)
        lines = [server.service.model.name, f"  address  {server.url}/v1"]
        if settings.feedback:
            lines.append(f"  page     {server.url}   (what users say goes to {settings.feedback})")
        if settings.against:
            lines.append(f"  against  {settings.against}, for {settings.split:.1%} of the users")
        print("\n".join([*lines, "ctrl-C stops the server."]), flush=True)
        server.run()
    return 0
