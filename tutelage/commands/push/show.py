"""What `tutelage push` prints: where the model is, or what would be uploaded."""

from tutelage.base.progress.phases import phase
from tutelage.commands.display import display
from tutelage.commands.push.run import push
from tutelage.commands.push.settings import PushSettings


def main(settings: PushSettings) -> int:
    """Upload, and print where the model is; or list what would be uploaded."""
    with display(), phase("push"):
        pushed = push(settings.run, settings.repo, public=settings.public, list_only=settings.list_only)
    if settings.list_only:
        for file in pushed.files:
            print(f"{file.stat().st_size / 1e6:10,.2f} MB  {file}")
        print(f"Nothing was uploaded. Without --list-only these files go to {settings.repo}.")
    else:
        print(pushed.address)
    return 0
