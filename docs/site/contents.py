"""The order of the pages: below each page, headings and the pages under them. Every page appears once."""

CONTENTS: dict[str, dict[str, list[str]]] = {
    "index": {
        "Begin": ["installation", "rlhf_in_one_sitting"],
        "How to": [
            "howto/align_to_a_team",
            "collecting",
            "collecting_api",
            "howto/prolific",
            "howto/import_annotations",
            "howto/votes_to_reward",
            "howto/judge_steps",
            "howto/step_rewards",
            "howto/custom_reward",
            "howto/agents",
            "howto/custom_algorithm",
            "howto/compare_runs",
            "howto/learning_from_use",
            "howto/promote",
            "distillation",
            "python",
            "howto/several_gpus",
            "howto/cluster",
            "howto/llama_cpp",
            "howto/from_trl",
            "servers",
            "not_learning",
        ],
        "Explanation": [
            "explanation/numerics",
            "explanation/kl",
            "explanation/any_split",
            "ranks",
            "scale",
            "raters",
            "explanation/ties",
            "explanation/architecture",
        ],
        "Reference": ["reference/README", "algorithms/README", "rewards", "data", "reference/files", "serving"],
        "Results": ["real_model", "results", "lab/README", "comparison"],
    },
    "algorithms/README": {"": ["*"]},
    "reference/README": {"": ["cli/README", "recipes", "metrics", "database", "http", "api/README"]},
    "reference/cli/README": {"": ["*"]},
    "reference/api/README": {"": ["*"]},
}
VISIBLE = {"reference/README"}
"""Pages that list the pages under them in their text; elsewhere these appear in the sidebar alone."""
