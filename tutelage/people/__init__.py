"""Collection of preferences from people, without HTTP. The first argument of every function is an open `Store`.

    store = open_store("demo/study.sqlite")                  # or postgresql://…
    study = create_study(store, "demo")                      # or open_study(store)
    add_items(store, study.id, prompts, completions, comparisons)        # records; an Item extends a Comparison
    rater = add_rater(store, study.id, "anna", kind="simulated")

    while (question := next_assignment(store, rater.id)) is not None:
        question.messages, question.left, question.right, question.item, question.lease_ends
        submit(store, question.id, Answer("left", strength=2))           # left right tie both_bad skip

    list_judgements(store, study.id)       # -> tuple[Judgement], canonical
    preferences(store, study.id)           # -> tuple[Preference], p_chosen from rater-aware aggregation

For reproducible simulations, pass a clock to `open_store` and a secret to `create_study`.

The modules, in the order in which an answer passes through them:

    store/          the only SQL: tables, migrations and backups, transactions, queries
    settings        plan of a study, consent text, what gives access; validation: ranges of settings, errors by field
    assignment      assignment of questions: next_assignment, renew, release, why_nothing, reserve_item (owners)
    rater_progress  progress of raters, and quotas that exceed the remaining questions
    kinds/          kinds of questions: pairs, rankings, ratings; each defines its answers and the pairs they imply
    live_conversation  next_step, say, keep_answer: conversations whose turns are judged as pairs; their models
    user_feedback   completions of a served model, and what its users say of them, as questions
    answers         answers in displayed and canonical form, with corrections and marked spans
    submission      submit: idempotent, with revisions
    selection       selection of votes that count, and the fate of every judgement
    aggregation     one label per pair: the Dawid-Skene posterior with raters weighted by reliability
    training_data   preferences, label_study: training rows as of a snapshot (freeze), with their sources
    correction_data corrections as training rows
    export          export_study: files with a reconciliation (manifest); restoration: a study from its export
    vote_import     import_votes (tables of other tools, read by vote_tables with a vote_mapping), pairs_to_judge
    recruitment     platforms, settings of recruitment, cost estimate
    remuneration    end of a visit from a platform, and the payment table
    notification    notices of the inbox, sent to owners by webhook and e-mail (mail); webhooks of a study: signed,
                    retried, delivered once
    programs/       API values, client, webhook signatures, and waiting for progress
    statistics/     agreement, raters, labels, models
    languages/      translations; Sentence: a sentence that can be translated later
    personal_data   detection of likely personal data; redaction: exports without it
    model_judges    judge_study: model judges (data.llm_judge) and reward models (ScoreJudge) as raters
    web/            the web application

Times are milliseconds since the epoch. Ids of studies, raters and assignments are integers of this database; keys of
prompts, responses and items are chosen by the caller. `Assignment` holds everything that a rater may see, and nothing
else. Invalid input raises `TutelageError`; a database that cannot be written at the moment raises `Unavailable`, in
which case nothing was saved and the request can be repeated.

Names are imported on first use, so that settings of commands can refer to this package without loading SQLAlchemy.
"""

from tutelage.base.modules import lazy_names

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
        "end_session",
        "list_invites",
        "peek_invite",
        "personal_link",
        "personal_links",
        "rater_of_session",
        "revoke_invite",
        "start_session",
    ),
    "people.store.assignments": ("Assignment",),
    "people.store.backup": ("backup",),
    "people.store.database": ("check", "open_store"),
    "people.store.engine": ("Store", "Unavailable"),
    "people.store.events": ("Event", "list_events"),
    "people.store.exclusions": ("exclude", "exclude_all", "include", "include_all"),
    "people.store.inbox": ("Notice", "close_notices", "count_notices", "list_notices", "reopen_notice", "write_note"),
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
