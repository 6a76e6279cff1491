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

What the modules do, in the order of an answer's life:

    store/          the only SQL: tables, opening with backups and migrations, transactions, queries
    assign, chance  who is asked what next: next_assignment, renew, release, why_nothing, reserve_item (owners)
    progress        how far a rater is, as the rater's screen says it; quotas: those that the questions left cannot fill
    kinds/          what may be asked: pairs, rankings, ratings; each says what an answer is and which pairs follow
    conversing      next_step, say, keep_answer: live conversations, between whose messages turns are judged as pairs
    chat_models     the models that raters talk to, by name
    answers         an answer as displayed and as meant; submission: submit, idempotent, revisions on top
    corrections     better responses that raters write, and spans that they mark as wrong; corrected: rows for training
                    of them; differences: what was changed, to read
    review          recent_answers (the newest is the one to undo), feedback after training questions
    selection       which votes count, and the one fate of every judgement
    aggregate       one label per pair: the Dawid–Skene posterior with raters weighted by reliability
    labels          preferences, label_study: rows for training at a frozen moment (freeze)
    training_rows   what training reads of a study: pairs and demonstrations, by where they come from
    export          export_study: files (export_rows) with a reconciliation (manifest); restoring.import_export makes
                    the study again
    importing       import_votes (other tools' tables, read by vote_tables; vote_columns: where they hold what),
                    pairs_to_judge (ready pairs)
    recruiting      raters from platforms, what they cost (platforms: how each names people and takes them back)
    visiting        when a visit of somebody from a platform is over, and the table to pay by
    retention       forgetting those whose time is over (store/forgetting, by store/consents)
    notifying       what comes into the inbox of the owners, by webhook and e-mail
    mailing         e-mail through a server, and personal links by it
    lookout         occasions that come into the inbox: full rounds, low agreement
    delivering      webhooks of a study: signed, tried again, told once
    programs/       what programs exchange with a study: values of the API, its client, signatures, waiting
    languages/      what raters read, in each language; Sentence: a sentence that can be said in another one later
    personal_data   what texts seem to hold of it; redaction: an export without it
    judging         judge_study: model judges (data.judging) and reward models (ScoreJudge) as raters
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
    "people.answers": (
        "Answer",
        "new_key",
    ),
    "people.assign": (
        "next_assignment",
        "release",
        "renew",
        "reserve_item",
        "why_nothing",
    ),
    "people.corrections": (
        "Correction",
        "Span",
    ),
    "people.labels": (
        "LabelledStudy",
        "label_study",
        "preferences",
    ),
    "people.plan": ("Plan",),
    "people.review": (
        "Feedback",
        "PastAnswer",
        "feedback",
        "recent_answers",
    ),
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
    "people.store.backup": ("backup",),
    "people.store.catalogue": (
        "Question",
        "list_questions",
    ),
    "people.store.engine": (
        "Store",
        "Unavailable",
    ),
    "people.store.exclusions": (
        "exclude",
        "exclude_all",
        "include",
        "include_all",
    ),
    "people.store.inbox": (
        "Notice",
        "close_notices",
        "count_notices",
        "list_notices",
        "reopen_notice",
        "write_note",
    ),
    "people.store.items": (
        "Additions",
        "Item",
        "add_items",
        "set_overlap",
        "set_priorities",
    ),
    "people.store.opening": (
        "check",
        "open_store",
    ),
    "people.store.overview": (
        "Counts",
        "Event",
        "Match",
        "Round",
        "Survey",
        "count_study",
        "list_events",
        "open_round",
        "survey",
    ),
    "people.store.questions": ("Assignment",),
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
    "people.store.sessions": (
        "end_session",
        "rater_of_session",
        "start_session",
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
    "people.store.votes": (
        "Snapshot",
        "Vote",
        "freeze",
        "list_judgements",
        "list_votes",
    ),
    "people.submission": (
        "Receipt",
        "submit",
    ),
}
_PLACES = {name: f"tutelage.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
