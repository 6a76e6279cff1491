"""Rollouts put together from responses and from other rollouts."""

import torch

from tutelage.core.batch import Rollout
from tutelage.rollout.generator import concatenate


def test_rollouts_are_joined_with_their_texts_and_versions() -> None:
    def part(name: str, rows: int, width: int, version: bool = True) -> Rollout:
        ones = torch.ones(rows, width, dtype=torch.long)
        return Rollout(
            prompt=ones[:, :1],
            prompt_mask=ones[:, :1].bool(),
            response=ones,
            mask=ones.bool(),
            logp=-ones.float(),
            terminated=torch.ones(rows, dtype=torch.bool),
            truncated=torch.zeros(rows, dtype=torch.bool),
            group=1,
            ids=(name,) * rows,
            texts=tuple(f"{name}{row}" for row in range(rows)),
            version=7 * ones if version else None,
        )

    joined = concatenate([part("a", 2, 1), part("b", 1, 3)])
    assert joined.texts == ("a0", "a1", "b0")
    assert joined.version is not None
    assert joined.mask.tolist() == [[True, False, False], [True, False, False], [True] * 3]
    assert joined.version[joined.mask].tolist() == [7] * 5
    assert concatenate([part("a", 2, 1), part("b", 1, 3, version=False)]).version is None
