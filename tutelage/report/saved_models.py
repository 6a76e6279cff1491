"""Models that an earlier version saved otherwise than it had trained them: with one matrix for a head and an embedding
of which an adapter had changed one. The files tell, so neither torch nor transformers is needed.
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from tutelage.report.files import read_object
from tutelage.report.json_values import Object, flat, items, number, section

HEADS = ("lm_head", "embed_out", "output_projection")
"""The names of heads in transformers. A tied one is in no file."""
LONGEST_HEADER = 100_000_000
"""Bytes that safetensors allows for the header of a file."""


def saving_faults(folder: Path, config: Object) -> tuple[str, ...]:
    """A sentence on the final model of the run in `folder` where it is not the one that was trained. `config` is the
    config.json of the run."""
    settings, model = flat(section(config, "settings") or config), folder / "model"
    rank, targets = settings.get("lora.rank"), settings.get("lora.targets")
    if not (isinstance(rank, int) and rank > 0 and isinstance(targets, str)):
        return ()
    tables = _vocabulary_matrices(model)
    if len(tables) != 1:
        return ()
    wrong = [name for name in targets.split(",") if _names_table(name, tables[0])]
    return (_sentence(folder, config, " and ".join(wrong)),) if wrong else ()


def _names_table(target: str, table: str) -> bool:
    """Whether a target of LoRA names the head, or the embedding whose module is `table`."""
    return target.rpartition(".")[2] in HEADS or f".{table}".endswith(f".{target}")


def _sentence(folder: Path, config: Object, wrong: str) -> str:
    command = [word for word in items(config, "command") if isinstance(word, str)]
    again = "call the function again with resume=True"
    if len(command) > 1 and Path(command[0]).name == "tutelage":
        again = f"run `{shlex.join([word for word in command if word != '--resume'])} --resume`"
    kept = any((folder / "checkpoints").glob("step-*"))
    cure = (
        f"The last checkpoint has what was trained: remove {folder / 'summary.json'} and {again}, which writes model/ "
        "anew."
        if kept
        else "No checkpoint is left: train it again."
    )
    return (
        f"model/ is not the model that was trained: an earlier version of Tutelage merged the adapter on {wrong} into "
        f"the one matrix that head and embedding share. {cure} Copies of model/ on a hub or as GGUF files, and runs "
        "that began with it, have the same fault."
    )


def _vocabulary_matrices(model: Path) -> list[str]:
    """The modules of a causal language model whose matrix has a row for every token, by the headers of its files."""
    config, _ = read_object(model / "config.json")
    if any(str(name).endswith("ForSequenceClassification") for name in items(config, "architectures")):
        return []
    rows = number(section(config, "text_config") or config, "vocab_size")
    return [
        name.removesuffix(".weight")
        for file in sorted(model.glob("*.safetensors"))
        for name, shape in _shapes(file)
        if name.endswith(".weight") and len(shape) == 2 and shape[0] == rows
    ]


def _shapes(file: Path) -> Iterator[tuple[str, list[object]]]:
    """The names and shapes of the tensors in a file of safetensors: a length of eight bytes, then a JSON object."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, LONGEST_HEADER)))
    except (OSError, ValueError):
        return
    for name, entry in header.items() if isinstance(header, dict) else ():
        if isinstance(entry, dict) and name != "__metadata__":
            yield name, items(entry, "shape")
