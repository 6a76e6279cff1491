"""Workflows: what each verb of the command line does, as functions of typed settings to typed results.

    result = sft(SftSettings(model=config.Model("path"), data="file.jsonl", out=Path("runs/sft")))

A workflow prints nothing and ends with a result or a `TutelageError`. Remarks are logged to the logger `tutelage`: INFO
for what is worth knowing, WARNING for trouble. A workflow that trains has a second form, `prepare_<name>`, a context
manager whose `Training` is iterated over step by step.

This room has one module for each workflow and imports nothing by itself; `import tutelage as tt` offers all of them.
"""
