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
        print(f"{server.service.model.name}\n  address  {server.url}/v1\nctrl-C stops the server.", flush=True)
        server.run()
    return 0
