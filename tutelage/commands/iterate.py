"""`tutelage iterate`: the next round of a study, about the policy that came of the last one."""

from tutelage.commands.collecting.settings_making import IterateSettings


def main(settings: IterateSettings) -> int:
    """Open the next round of a study."""
    from tutelage.commands.collecting.iterating import open_round

    open_round(settings)
    return 0
