"""`tutelage collect simulate`: simulated raters over HTTP, for demonstrations, load tests, and votes with known ground
truth."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, count
from random import Random
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from tutelage.base.errors import TutelageError
from tutelage.base.modules import function_named
from tutelage.base.nouns import counted
from tutelage.commands.collect.server import ServedModels
from tutelage.commands.collect.settings import Simulate
from tutelage.commands.study import open_existing
from tutelage.data.text_counts import words
from tutelage.data.transcripts import transcript_text
from tutelage.data.worlds.gold import Utility
from tutelage.data.worlds.topics import find_topic
from tutelage.data.worlds.world import World
from tutelage.people.answers import Answer
from tutelage.people.kinds.kind import ResponseValues, Screen
from tutelage.people.simulated_raters import NAMES, SimulatedRater, panel
from tutelage.people.store.conversations import find_live_models
from tutelage.rollout.serving.asgi_server import listen, server

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.store.item_catalogue import Question
    from tutelage.people.web.client import RaterClient, RemoteQuestion

PATIENCE = 60.0


def simulate(settings: Simulate) -> int:
    """Let all raters answer concurrently, and print the latencies of the server."""
    store, study = open_existing(settings)
    if settings.answers is None and find_live_models(store, study.id) is not None:
        raise TutelageError("Live conversations never end by themselves: limit the answers with --answers.")
    if study.kind.traits.steps and not settings.gold:
        raise TutelageError(
            f"'{study.name}' {study.kind.traits.does}: give --gold module:function, whose value is positive for a "
            "right step and negative for a wrong one."
        )
    from tutelage.commands.display import progress
    from tutelage.people.store.item_catalogue import list_questions

    raters = crowd(settings.seed, settings.raters)
    utility, name = utility_for(list_questions(store, study.id), settings.gold)
    if not settings.gold:
        print(f"The raters prefer by {name}; --gold sets another utility.", file=sys.stderr)
    most = None if settings.answers is None else settings.answers * settings.raters
    with (
        closing(store),
        _site(store, settings.url) as url,
        progress("answers", most) as advance,
        ThreadPoolExecutor(settings.raters) as pool,
    ):
        number, one_by_one = count(1), threading.Lock()

        def answered() -> None:
            with one_by_one:
                advance(next(number), {})

        work = [pool.submit(_work, store, study, url, rater, utility, settings, answered) for rater in raters]
        results = [each.result() for each in work]
    for rater, seconds in zip(raters, results, strict=True):
        print(f"{rater.name:<12} {counted(len(seconds), 'answer'):>15}")
    times = sorted(chain.from_iterable(results))
    if times:
        print(
            f"{counted(len(times), 'answer')}; half were acknowledged within {1000 * times[len(times) // 2]:.0f} ms, "
            f"95 % within {1000 * times[int(0.95 * (len(times) - 1))]:.0f} ms"
        )
    return 0


def crowd(seed: int, count: int) -> list[SimulatedRater]:
    """Create `count` simulated raters in as few panels (see `simulate.raters.panel`) of about equal size as possible.

    The names in later panels end with a number.
    """
    panels = max(1, -(-count // len(NAMES)))
    sizes = [count // panels + (number < count % panels) for number in range(panels)]
    return [
        replace(rater, name=f"{rater.name} {number + 1}" if number else rater.name)
        for number, size in enumerate(sizes)
        for rater in panel(seed + number, size)
    ]


def utility_for(questions: "Sequence[Question]", name: str) -> tuple[Utility, str]:
    """Return the utility called `name` and its name; without a name, that of the embedded world if every question is
    about one of its topics, else clarity, which any text has.

    Raises TutelageError if it has no value for the first question, before there are raters and answers.
    """
    if not name:
        is_world = bool(questions) and all(map(_names_topic, questions))
        name = f"tutelage.data.worlds:{'gold' if is_world else 'clarity'}"
    utility = cast(Utility, function_named(name))
    for question in questions[:1]:
        steps = [step if isinstance(step, str) else transcript_text(step) for step in question.completions[0].steps]
        texts = steps if len(question.texts) == 1 else list(question.texts)
        try:
            values = utility([question.messages[-1].content] * len(texts), texts)
        except Exception as error:
            raise TutelageError(
                f"--gold {name} fails on the question {question.key}: {error} Give a function with a value for every "
                "completion of this study, or omit --gold. Nothing was answered."
            ) from error
        if len(values) != len(texts):
            raise TutelageError(
                f"--gold {name} gave {counted(len(values), 'value')} for {counted(len(texts), 'completion')}."
            )
    return utility, name


def _names_topic(question: "Question") -> bool:
    try:
        return bool(find_topic(question.messages[-1].content))
    except TutelageError:
        return False


def _work(
    store: "Store",
    study: "Study",
    url: str,
    rater: SimulatedRater,
    utility: Utility,
    settings: Simulate,
    answered: Callable[[], None],
) -> list[float]:
    """Seconds until the server acknowledged each answer of a rater."""
    times: list[float] = []
    with closing(sign_in(store, study, url, rater.name)) as client:
        while settings.answers is None or len(times) < settings.answers:
            message_rng = Random(f"{settings.seed}/{rater.name}/{len(times)}")
            question, _ = client.next(say=lambda openings, rng=message_rng: message(openings, rng))  # type: ignore[misc]
            if question is None:
                break
            chance = Random(f"{settings.seed}/{rater.name}/{question.id}")
            answer = choose(study, question, rater, utility, chance, len(times))
            if settings.think:
                time.sleep(chance.expovariate(1 / settings.think))
            began = time.perf_counter()
            client.answer(question.id, answer)
            times.append(time.perf_counter() - began)
            answered()
    return times


def message(openings: Sequence[str], rng: Random) -> str:
    """Return the message of a simulated rater in a live conversation: a suggestion, else a prompt of the built-in
    world."""
    return rng.choice(openings or [prompt.messages[-1].content for prompt in World().prompts("train")])


def sign_in(store: "Store", study: "Study", url: str, name: str) -> "RaterClient":
    """Return a client signed in as the simulated rater with this name, who is created if absent."""
    from tutelage.people import add_rater, find_rater, start_session
    from tutelage.people.web.client import RaterClient
    from tutelage.people.web.site import cookie_name

    rater = find_rater(store, study.id, name) or add_rater(store, study.id, name, kind="simulated")
    if rater.kind != "simulated":
        raise TutelageError(
            f"'{study.name}' has a rater '{name}' who is {rater.kind}: only simulated raters can be simulated."
        )
    parts = urlsplit(url)
    cookie = cookie_name(store, secure=parts.scheme == "https", root=parts.path.rstrip("/"))
    return RaterClient(url, start_session(store, rater.id, days=1), cookie)


def choose(
    study: "Study", question: "RemoteQuestion", rater: SimulatedRater, utility: Utility, rng: Random, answered: int
) -> Answer:
    """Return the simulated rater's answer to a question, by the rules of the study's kind."""
    steps = question.steps[0] if study.kind.traits.steps else ()
    texts = steps or question.texts
    values = utility([question.prompt] * len(texts), list(texts))
    lengths = tuple(len(words(text)) for text in texts)
    presentation = study.presentation
    criteria, rubric = presentation.criteria, question.rubric
    screen = Screen(len(question.texts), presentation.scale, criteria, steps=len(steps), rubric=rubric)
    answer = study.kind.simulate(ResponseValues(tuple(values), lengths), screen, rater, rng, answered)
    return replace(answer, client="simulated")


@contextmanager
def _site(store: "Store", url: str) -> Iterator[str]:
    """Yield the address of the given server, or of a temporary one."""
    if url:
        yield url.rstrip("/")
        return
    from tutelage.people.web import create_app

    with closing(ServedModels()) as models, closing(listen("127.0.0.1", 0)) as listening:
        running = server(create_app(store, models=models))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        limit = time.monotonic() + PATIENCE
        while not running.started and time.monotonic() < limit:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join(PATIENCE)
