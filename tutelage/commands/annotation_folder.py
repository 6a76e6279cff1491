"""The folder of `tutelage import`: annotations that are recognised when they are imported again, and the files that
other commands read.

    annotations.jsonl                  everything that was imported; all other files follow from it and the next two
    prompts.jsonl, completions.jsonl   the responses, annotated or not, with the ids of the tool
    comparisons.jsonl                  pairs of them; the three are read by `collect init --from-sample`
    votes.jsonl                        choices between two responses; read by `collect import` and `raters`
    ratings.jsonl                      ratings of one response; read by `raters`
    preferences.jsonl                  read by `reward` and `dpo`
    unpaired.jsonl                     responses labelled good or bad; read by `sft` and `dpo --loss kto`
    demonstrations.jsonl               better responses; read by `sft`
    left_out.jsonl                     the statements of the last import that became nothing, with the reasons
    import.json                        what every import shares, and what recognises raters and responses
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.data.annotations import Annotation, Derived, Ledger, Subject
from tutelage.data.formats import load_completions, load_prompts
from tutelage.data.pairing import pair_completions
from tutelage.data.record_files import from_row, to_row, write_jsonl
from tutelage.data.records import Comparison, CompletionRecord, Messages, Prompt, prompt_id, stable_id
from tutelage.data.vote_rows import CHOICES, meaning_name

MANIFEST = "import.json"
FORMAT = "tutelage-import/2"
UNKNOWN = "unknown"
"""Name of a model that the tool does not name."""


@dataclass
class ImportFolder:
    """What a folder has: annotations and responses by id, and the numbers of raters and the status of their work, if it
    does not count, by the salted hash of their ids. `fixed` are the settings that all imports share."""

    path: Path
    fixed: Mapping[str, bool]
    salt: str = field(default_factory=lambda: secrets.token_hex(16))
    raters: dict[str, int] = field(default_factory=dict)
    work: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, Annotation] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def rater(self, name: str) -> str:
        """The numbered name of a rater, the same in every import."""
        return f"rater-{self.raters.setdefault(self._key(name), len(self.raters) + 1)}"

    def _key(self, name: str) -> str:
        return hashlib.sha256(f"{self.salt}{name}".encode()).hexdigest()[:32]

    def set_work(self, work: Mapping[str, str]) -> None:
        """Set the status of the work of raters by their ids; empty if it counts."""
        for name, status in work.items():
            self.work[self._key(name)] = status

    @property
    def rejected(self) -> dict[str, str]:
        """The raters of annotations whose work does not count, by their names in the folder, with its status."""
        named = {each.rater for each in self.annotations.values()} if self.fixed.get("names") else ()
        keys = {f"rater-{number}": key for key, number in self.raters.items()} | {n: self._key(n) for n in named}
        return {name: status for name, key in keys.items() if (status := self.work.get(key, ""))}

    def private(self, annotation: Annotation) -> Annotation:
        """The annotation with the numbered name of its rater, also at the end of its id, which a tool without ids of
        annotations has from the rater's."""
        if not annotation.rater:
            return annotation
        name, (key, slash, last) = self.rater(annotation.rater), annotation.id.rpartition("/")
        id_ = f"{key}{slash}{name}" if last == annotation.rater else annotation.id
        return replace(annotation, id=id_, rater=name)

    def merge(self, annotation: Annotation) -> str:
        """Add an annotation. Returns "new", "changed", "known", or "older" if the folder has a later edit, which is
        kept."""
        before = self.annotations.get(annotation.id)
        if before is not None and not annotation.time:
            annotation = replace(annotation, time=before.time)  # unknown, but exported now
        if before is not None and annotation.time < before.time:
            return "older"
        self.annotations[annotation.id] = annotation
        if before is None:
            return "new"
        return "known" if replace(before, time=annotation.time) == annotation else "changed"


def open_folder(path: Path, fixed: Mapping[str, bool]) -> ImportFolder:
    """The folder of earlier imports, or a new one.

    Raises:
        TutelageError: it holds other things, is damaged, or was written with other settings in `fixed`.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return ImportFolder(path, fixed)
    if not (path / MANIFEST).is_file():
        raise TutelageError(f"--out {path} holds other things than an import; give the name of a new folder.")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        lines = (path / "annotations.jsonl").read_bytes().splitlines()  # of bytes: U+2028 ends no line
        annotations = [_annotation(json.loads(line)) for line in lines]
        before, form, aliases = manifest["fixed"], manifest["format"], dict(manifest["aliases"])
        folder = ImportFolder(path, fixed, manifest["salt"], manifest["raters"], manifest["work"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TutelageError(f"The import in {path} cannot be continued: {error}.") from error
    if form != FORMAT:
        raise TutelageError(f"{path} is an import of the format {form}, not {FORMAT}: import into a new folder.")
    for name, value in fixed.items():
        if before.get(name) != value:
            had, given = ("with", "without") if before.get(name) else ("without", "with")
            raise TutelageError(f"{path} was imported {had} --{name}, and this import is {given} it: give it alike.")
    folder.annotations = {each.id: each for each in annotations}
    if (path / "completions.jsonl").exists():
        prompts = {prompt.id: prompt.messages for prompt in load_prompts(path / "prompts.jsonl").records}
        for each in load_completions(path / "completions.jsonl").records:
            model = "" if each.sampler == UNKNOWN else each.sampler
            alias = aliases.get(each.id, "")
            folder.subjects[each.id] = Subject(each.id, prompts[each.prompt_id], each.text, model, alias)
    return folder


def _annotation(row: dict[str, Any]) -> Annotation:
    messages = from_row(Prompt, row.pop("prompt")).messages
    lists = {name: tuple(row[name]) for name in ("responses", "response_ids", "models")}
    return Annotation(**{**row, **lists, "messages": messages})


def _row(annotation: Annotation) -> dict[str, object]:
    row = asdict(replace(annotation, messages=()))
    del row["messages"]
    prompt = to_row(Prompt(prompt_id(annotation.messages), annotation.messages))
    return row | {"prompt": prompt}


def redacted(annotation: Annotation, redact: Callable[[str], str], words: Collection[str]) -> Annotation:
    """The annotation with changed texts; its value may be a text, unless it is one of `words`."""
    value = annotation.value
    if isinstance(value, str) and value not in words:
        value = redact(value)
    return replace(
        annotation,
        messages=_redacted(annotation.messages, redact),
        responses=tuple(map(redact, annotation.responses)),
        value=value,
        reason=redact(annotation.reason),
    )


def redacted_subject(subject: Subject, redact: Callable[[str], str]) -> Subject:
    """The response with changed texts."""
    return replace(subject, messages=_redacted(subject.messages, redact), response=redact(subject.response))


def _redacted(messages: Messages, redact: Callable[[str], str]) -> Messages:
    return tuple(replace(message, content=redact(message.content)) for message in messages)


def write_folder(folder: ImportFolder, derived: Derived, ledger: Ledger) -> dict[str, int]:
    """Write all files; one without rows is removed. Returns the numbers of rows, by file."""
    prompts, completions = _responses(folder.subjects.values())
    files: dict[str, Iterable[Mapping[str, object]]] = {
        "annotations": map(_row, folder.annotations.values()),
        "prompts": map(to_row, prompts),
        "completions": map(to_row, completions),
        "comparisons": map(to_row, _comparisons(completions, folder.annotations.values())),
        "votes": (_vote(each, word) for each, word in derived.votes),
        "ratings": (
            _judged(each) | {"completion": each.responses[0], "model": each.models[0], "choice": number}
            for each, number in derived.ratings
        ),
        "preferences": map(to_row, derived.preferences),
        "unpaired": map(to_row, derived.labels),
        "demonstrations": map(to_row, derived.demonstrations),
        "left_out": (
            {"where": place, "reason": reason} for reason, places in ledger.left_out.items() for place in places
        ),
    }
    counts = {name: _write(folder.path / f"{name}.jsonl", rows) for name, rows in files.items()}
    aliases = {each.id: each.alias for each in folder.subjects.values() if each.alias}
    own = {"salt": folder.salt, "raters": folder.raters, "work": folder.work, "aliases": aliases}
    manifest = {"format": FORMAT, "fixed": folder.fixed} | own
    write_atomically(folder.path / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return counts


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    lines = list(rows)
    if lines or path.stem == "annotations":
        return write_jsonl(path, lines)
    path.unlink(missing_ok=True)
    return 0


def _responses(subjects: Iterable[Subject]) -> tuple[list[Prompt], list[CompletionRecord]]:
    prompts: dict[str, Prompt] = {}
    completions = []
    for each in subjects:
        key = prompt_id(each.messages)
        prompts.setdefault(key, Prompt(key, each.messages))
        completions.append(CompletionRecord(each.id, key, each.response, each.model or UNKNOWN))
    return list(prompts.values()), completions


def _comparisons(completions: Sequence[CompletionRecord], annotations: Iterable[Annotation]) -> Iterator[Comparison]:
    """The pairs that were compared, and a pair of each other prompt with two different responses."""
    prompt_of = {completion.id: completion.prompt_id for completion in completions}
    compared: dict[str, Comparison] = {}
    for each in annotations:
        if len(each.responses) == 2 and each.responses[0] != each.responses[1]:
            a, b = sorted(each.response_ids)
            key = stable_id(prompt_of[a], a, b)
            compared[key] = Comparison(key, prompt_of[a], a, b, "imported")
    prompt_ids = {comparison.prompt_id for comparison in compared.values()}
    yield from compared.values()
    yield from pair_completions(
        (each for each in completions if each.prompt_id not in prompt_ids), pairs_per_prompt=1, rng_seed=0
    )


def _judged(each: Annotation) -> dict[str, object]:
    """Columns of votes and ratings: what was judged, by whom, when and why."""
    prompt = to_row(Prompt("", each.messages))
    time = datetime.fromtimestamp(each.time / 1000, UTC).isoformat() if each.time else None
    return {
        "id": each.id,
        "item": each.item,
        "prompt": prompt.get("prompt", prompt.get("messages")),
        "question": each.question,
        "rater": each.rater,
        "time": time,
        "reason": each.reason,
    }


def _vote(each: Annotation, word: str) -> dict[str, object]:
    """The choice with both responses in the order of the tool."""
    sides = {
        f"{name}_{end}": values[place]
        for place, end in enumerate("ab")
        for name, values in (("response", each.responses), ("model", each.models))
    }
    return _judged(each) | sides | {"choice": meaning_name(*CHOICES[word])}
