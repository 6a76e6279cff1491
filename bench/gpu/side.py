"""One unit in a process of its own: `python -m bench.gpu.side PART SUBJECT DEVICE FILE [tiny]`.

It waits for a line of input before it touches the device.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from bench.gpu.parts import Unit, units
from bench.machine import name_of


def main(part: str, subject: str, device: str, file: str, tiny: str = "") -> None:
    """Write the name of the card, then the figures or the error."""
    unit = next(each for each in units() if each.key == (part, subject))
    sys.stdin.readline()
    line = {"card": name_of(device)}
    Path(file).write_text(json.dumps(line))
    Path(file).write_text(json.dumps(line | outcome(unit, device, tiny == "tiny")))


def outcome(unit: Unit, device: str, tiny: bool) -> dict[str, Any]:
    """The figures of a unit, or the last lines of its error."""
    try:
        return {"figures": dict(unit.part.measure(device, tiny, unit.subject))}
    except Exception:
        return {"error": "\n".join(traceback.format_exc().strip().splitlines()[-14:])}


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of a peer may keep the process alive
