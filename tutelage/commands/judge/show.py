"""`tutelage judge`: the figures of an alignment on the terminal."""

from collections.abc import Sequence

from tutelage.base.nouns import counted
from tutelage.commands.judge.settings import Align, JudgeSettings


def main(settings: JudgeSettings) -> int:
    """Align the judge, and print its agreement with people and its biases before and after."""
    assert isinstance(settings, Align), "the only subcommand"
    from tutelage.commands.display import display
    from tutelage.commands.judge.run import JUDGE, align
    from tutelage.stats.intervals import Interval, points_text, share_text

    with display():
        result = align(settings)
    before, after = result.before, result.after
    rows: Sequence[tuple[str, Interval, Interval]] = [
        ("agrees with people", before.trust.agreement, after.trust.agreement),
        *([("prefers the first", before.first, after.first)] if before.first and after.first else []),
    ]
    print(f"measured on {counted(before.trust.pairs, 'pair')} of prompts that the choice did not see:")
    for name, one, other in rows:
        print(f"  {name:<24}{share_text(one)} before, {share_text(other)} after")
    lengths = (before.trust.length, after.trust.length)
    if all(each.value is not None for each in lengths):
        texts = [points_text(each) for each in lengths]
        print(f"  {'prefers the longer':<24}{texts[0]} before, {texts[1]} after, more often than people do")
    print(f"  {'gain':<24}{points_text(result.gain)} of agreement, by '{result.name}'")
    if result.aligned:
        print(f"aligned: --reward judge:{settings.out / JUDGE}; --trust leaves the prompts out on which it was chosen")
    else:
        print("not aligned: the interval of the gain includes 0, so the judge stays as it is and no file is written")
    return 0
