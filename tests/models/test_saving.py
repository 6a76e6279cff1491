"""What is saved can be read by everybody who may read the folder."""

import os
import stat

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import tiny
from tutelage.models.saving import save_files


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_weights_have_the_permissions_that_the_umask_allows(tmp_path, umask, mode):
    source = tiny.save("llama", tmp_path / "source")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    before = os.umask(umask)
    try:
        save_files(model, tokenizer, tmp_path / "saved")
    finally:
        os.umask(before)
    files = [*(tmp_path / "saved").iterdir()]
    assert "model.safetensors" in {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {mode}
