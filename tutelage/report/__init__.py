"""Reports: one self-contained HTML page about a run or a round, generated from its folder.

`folders` and `json_files` read files. `facts`, `stage_figures`, `diagnoses` and `sample_answers` compute the content,
and `page` renders it; `findings_in` returns the findings without a page. `model_card` writes the card of a trained
model from its `provenance`.
"""
