"""A model and its tokenizer as files of transformers or PEFT, which everybody may read who may read the folder."""

from pathlib import Path
from typing import Any


def save_files(model: Any, tokenizer: Any, folder: Path | str, **more: Any) -> None:
    """Write `model` (with `more` for its `save_pretrained`) and `tokenizer` into a folder.

    safetensors writes weights for their owner alone, whatever the umask; they get the permissions of the configuration
    beside them, so that colleagues and servers under other accounts load the model. Raises OSError.
    """
    model.save_pretrained(str(folder), **more)
    tokenizer.save_pretrained(str(folder))
    folder = Path(folder)
    for configuration in (*folder.glob("config.json"), *folder.glob("adapter_config.json")):
        for weights in folder.glob("*.safetensors"):
            weights.chmod(configuration.stat().st_mode)
