"""`tutelage serve`: serve a model over HTTP."""

import os

from tutelage.workflows.settings.serve import PARENT
from tutelage.workflows.settings.serve import ServeSettings as Settings


def main(settings: Settings) -> int:
    """Serve until SIGTERM or ctrl-C."""
    if os.environ.get(PARENT):
        from tutelage.rollout.serving.parent import end_with_parent

        end_with_parent()  # before what takes long to import
    from tutelage.commands.terminal import remarks
    from tutelage.workflows.serve import serve

    with remarks(quiet=False):
        server = serve(settings)
        print(
            f"{server.service.model.name}\n  address  {server.url}/v1\nctrl-C stops the server.", flush=True
        )
        server.run()
    return 0
