"""People in the loop: collecting preferences, without HTTP. Everything takes an open `Store` first.

    store = open_store("demo/study.sqlite")                  # or postgresql://…
    study = create_study(store, "demo")                      # or open_study(store)
    add_items(store, study.id, prompts, completions, comparisons)        # records; an Item says more than a Comparison
    rater = add_rater(store, study.id, "anna", kind="simulated")

    while (question := next_assignment(store, rater.id)) is not None:
        question.messages, question.left, question.right, question.item, question.lease_ends
        submit(store, question.id, Answer("left", strength=2))           # left right tie both_bad skip

    list_judgements(store, study.id)       # -> tuple[Judgement], canonical
    preferences(store, study.id)           # -> tuple[Preference], p_chosen from rater-aware aggregation

For a simulation that repeats itself exactly, give `open_store` a clock and `create_study` a secret.

The modules, in the order of an answer's life:

    store/          the only SQL: tables, opening with backups and migrations, transactions, queries
    settings        the plan of a study and the text that raters agree to; fields: ranges of settings, errors by field
    assignment      who is asked what next: next_assignment, renew, release, why_nothing, reserve_item (owners)
    rater_progress  how far a rater is, and quotas that the questions left cannot fill
    kinds/          what may be asked: pairs, rankings, ratings; each says what an answer is and which pairs follow
    live_conversation  next_step, say, keep_answer: between its messages turns are judged as pairs
    chat_models     the models that raters talk to, by name
    answers         an answer as displayed and as meant, with its correction and marked spans
    submission      submit, idempotent, revisions on top
    selection       which votes count, and the one fate of every judgement
    aggregation     one label per pair: the Dawid-Skene posterior with raters weighted by reliability
    training_data   preferences, label_study: rows for training at a frozen moment (freeze), and where they come from
    correction_data corrections as rows for training; differences: what was changed, to read
    export          export_study: files with a reconciliation (manifest); restoration: the study made again of them
    vote_import     import_votes (other tools' tables, read by vote_tables), pairs_to_judge (ready pairs)
    recruitment     platforms, the settings of recruitment, its estimated cost
    remuneration    when a visit of a rater from a platform is over, and the table to pay by
    notification    what comes into the inbox of the owners, by webhook and e-mail (mail)
    delivery        webhooks of a study: signed, tried again, delivered once
    programs/       what programs exchange with a study: values of the API, its client, signatures, waiting
    statistics/     agreement, raters, labels, models
    languages/      what raters read, in each language; Sentence: a sentence that can be said in another one later
    personal_data   what texts seem to hold of it; redaction: an export without it
    model_judges    judge_study: model judges (data.judging) and reward models (ScoreJudge) as raters
    web/            the application on top

Times inside are milliseconds since the epoch; ids of studies, raters and assignments are integers of this database,
keys of prompts, responses and items are the caller's own. What a rater may see is in `Assignment`, and only there.
Mistakes raise `TutelageError`; a database that cannot be written just now raises `Unavailable`, and then nothing was
saved and the same request may be sent again.

Every name is imported when it is first used, so that settings of a command can name what people do without loading
SQLAlchemy.
"""

from tutelage.base.lazy import lazy_names

_NAMES = {
    "people.answers": ("Answer", "Correction", "Span", "new_key"),
    "people.assignment": ("next_assignment", "release", "renew", "reserve_item", "why_nothing"),
    "people.training_data": ("LabelledStudy", "label_study", "preferences"),
    "people.settings": ("Plan",),
    "people.selection": ("Selection",),
    "people.store.access": (
        "Invite",
        "accept_invite",
        "create_invite",
        "list_invites",
        "peek_invite",
        "personal_link",
        "personal_links",
        "revoke_invite",
    ),
    "people.store.assignments": ("Assignment",),
    "people.store.backup": ("backup",),
    "people.store.database": ("check", "open_store"),
    "people.store.engine": ("Store", "Unavailable"),
    "people.store.events": ("Event", "list_events"),
    "people.store.exclusions": ("exclude", "exclude_all", "include", "include_all"),
    "people.store.inbox": (
        "Notice",
        "close_notices",
        "count_notices",
        "list_notices",
        "reopen_notice",
        "write_note",
    ),
    "people.store.item_catalogue": ("Question", "list_questions"),
    "people.store.items": ("Additions", "Item", "add_items", "set_overlap", "set_priorities"),
    "people.store.judgements": ("Feedback", "PastAnswer", "feedback", "recent_answers"),
    "people.store.raters": (
        "NameTaken",
        "Rater",
        "Tallies",
        "add_rater",
        "change_rater",
        "consent",
        "find_rater",
        "get_rater",
        "list_raters",
    ),
    "people.store.sessions": ("end_session", "rater_of_session", "start_session"),
    "people.store.studies": (
        "Presentation",
        "Study",
        "create_study",
        "list_studies",
        "open_study",
        "present",
        "replan",
        "set_languages",
        "set_state",
    ),
    "people.store.survey": ("Counts", "Match", "Round", "Survey", "count_study", "open_round", "survey"),
    "people.store.votes": ("Snapshot", "Vote", "freeze", "list_judgements", "list_votes"),
    "people.submission": ("Receipt", "submit"),
}
_PLACES = {name: f"tutelage.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
