"""The order of the pages: below each page, headings and the pages under them. Every page stands here once."""

CONTENTS: dict[str, dict[str, list[str]]] = {
    "index": {
        "Begin": ["installation", "rlhf_in_one_sitting"],
        "How to": [
            "collecting",
            "distillation",
            "not_learning",
            "ranks",
            "rewards",
            "scale",
            "servers",
            "serving",
        ],
        "Explanation": ["raters"],
        "Reference": ["data", "python", "algorithms/README"],
        "Results": ["lab/README"],
    },
    "algorithms/README": {"": ["*"]},
}
