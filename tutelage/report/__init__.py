"""Reports: one self-contained HTML page about a run or a round, made from its folder.

`folders` and `json_files` read. `facts`, `stage_figures`, `diagnoses` and `sample_answers` decide what the page shows,
and `page` writes it; `findings_in` has what asks for a look without the page. `model_card` writes the card of a trained
model, with its `provenance`.
"""
