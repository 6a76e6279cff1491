"""Continuous batching of the turns of episodes: turns join and leave while others are sampled.

    turn 1 of episode a   read  read  draw  draw  draw  ·  (its tool runs)  ·  ·  read  draw  …
    turn 1 of episode b         read  draw  draw  draw  draw  draw  ·  ·  read  draw  …

The keys and values of an episode are kept while its tools run, so a turn reads only what is new. All of them belong to
one rollout, during which weights do not change. Where no bit depends on what is read at once, turns may have drafts
(see `drafts`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from time import perf_counter
from typing import Any

import torch

from tutelage.base import config
from tutelage.engines.lines import Lines
from tutelage.engines.sampling import StopCondition, text_of
from tutelage.engines.token_sampling import draw, row_seed, uniforms
from tutelage.models.policy import Policy
from tutelage.rollout.drafts import LONGEST, ORDER, SHORTEST, Drafts
from tutelage.rollout.environment import Trace, TurnRequest
from tutelage.rollout.generator import SampledCompletion

WORTH = 2
"""Drafted tokens per turn that a pass needs: it costs twice as much as one over a single token of each turn."""
LOGITS = 1 << 24
"""Logits of a pass with drafts: 64 MB in float32."""
Episode = tuple[str, int]
"""Id of the prompt, and number of the sample."""


@dataclass
class KeptContext:
    """What was read of the last context of an episode, which began with a prompt of `prompt` tokens; `line` is None if
    its keys and values had to go. `before` is the number of tokens that were read when they did. Its next draft has up
    to `reach` tokens."""

    line: int | None
    prompt: int
    tokens: list[int] = field(default_factory=list)
    before: int = 0
    reach: int = SHORTEST

    def precedes(self, request: TurnRequest) -> bool:
        """Whether a request goes on with this context."""
        count = len(self.tokens)
        same = self.prompt == request.prompt and self.tokens == list(request.tokens[:count])
        return same and count < len(request.tokens)


@dataclass
class ActiveTurn:
    """A turn that is sampled: pieces to read before the next token, the tokens so far, and a draft of those after the
    next one."""

    request: TurnRequest
    line: int
    pieces: deque[Sequence[int]]
    uniforms: torch.Tensor
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    draft: Sequence[int] = ()

    @property
    def episode(self) -> Episode:
        """Name of its episode."""
        return episode_of(self.request.trace)


def episode_of(trace: Trace) -> Episode:
    """Name of an episode, the same for all of its attempts."""
    return trace.prompt.id, trace.number


class ContinuousBatch:
    """Turns in progress on `lines`.

    At most `rows` of them, and up to `room` tokens with keys and values: then contexts of waiting episodes are
    forgotten, the longest unused first, and read again when they are needed. `widest` is the largest number of turns in
    progress so far.
    """

    def __init__(
        self, policy: Policy, lines: Lines[Any, Any], sampling: config.Sampling, seed: int, *,
        rows: int, room: int, version: int, drafts: Drafts | None = None,
    ) -> None:  # fmt: skip
        self.policy, self.lines, self.sampling, self.seed = policy, lines, sampling, seed
        self.rows, self.room, self.version, self.drafts = rows, room, version, drafts
        self.ends = StopCondition(policy.tokenizer, policy.end_ids, sampling.stop, policy.device)
        self.widest = self._new = self._sampled = 0
        self._prompts: set[tuple[int, ...]] = set()
        self._queue: deque[tuple[TurnRequest, str, int]] = deque()
        self._turns: list[ActiveTurn] = []
        self._kept: dict[Episode, KeptContext] = {}  # the longest unused first
        self._numbers = count()

    @property
    def is_idle(self) -> bool:
        """Whether no turn is in progress or waits for its start."""
        return not (self._turns or self._queue)

    @property
    def reread(self) -> int:
        """Tokens that were read more than once, a prompt of several episodes for the first of them."""
        return self.lines.computed - self.lines.rejected - self._new - sum(map(len, self._prompts))

    def add(self, request: TurnRequest, name: str, number: int) -> None:
        """Queue a turn, with the name and the number of its random stream (see `token_sampling.row_seed`). It replaces
        one of the same episode that nobody waits for any more, as of an attempt that ended."""
        self._abandon(episode_of(request.trace))
        self._queue.append((request, name, number))

    def forget(self, trace: Trace) -> None:
        """Free the context of an episode that has ended."""
        self._abandon(episode_of(trace))
        kept = self._kept.pop(episode_of(trace), None)
        if kept is not None and kept.line is not None:
            self.lines.drop(kept.line)

    def step(self) -> None:
        """Admit queued turns, read a piece of each turn and its draft, and sample the next tokens of those without
        another piece."""
        self._admit()
        if not self._turns:
            return
        self.widest = max(self.widest, len(self._turns))
        before = {turn.episode: len(self._kept[turn.episode].tokens) for turn in self._turns}
        is_single, turns = all(len(turn.pieces[0]) == 1 for turn in self._turns), len(self._turns)
        started, known = perf_counter(), self._sampled
        is_drafted = self._draft_turns()
        self._read_and_draw()
        if self.drafts is not None and is_single and self._sampled > known:
            self.drafts.time(turns, perf_counter() - started, self._sampled - known, drafted=is_drafted)
        for turn in self._turns:
            self._note(self._kept[turn.episode], before[turn.episode])
        self._turns = [turn for turn in self._turns if turn.pieces]

    def _draft_turns(self) -> bool:
        """Make drafts of all turns if that promises to save time; whether there are any."""
        none: list[Sequence[int]] = [()] * len(self._turns)
        pays = self.drafts is not None and self.drafts.pay(len(self._turns))
        share = LOGITS // self.policy.vocabulary // len(self._turns)
        drafts = [self._draft(turn, share) for turn in self._turns] if pays else none
        is_worth_it = any(drafts) and sum(map(len, drafts)) >= WORTH * len(drafts)
        for turn, draft in zip(self._turns, drafts if is_worth_it else none, strict=True):
            turn.draft = draft
        return is_worth_it

    def _read_and_draw(self) -> None:
        """Read a piece of each turn and its draft, and sample the next tokens of those without another piece."""
        pieces = {turn.line: (*turn.pieces[0], *turn.draft) for turn in self._turns}
        counts = {turn.line: 1 + len(turn.draft) for turn in self._turns}
        logits = self.lines.extend(pieces, counts)
        for turn in self._turns:
            self._kept[turn.episode].tokens += turn.pieces.popleft()
        drawn = [turn for turn in self._turns if not turn.pieces]
        if drawn and len(drawn) < len(self._turns):
            each = zip(self._turns, logits.split(list(counts.values())), strict=True)
            logits = torch.cat([own for turn, own in each if not turn.pieces])
        if drawn:
            self._draw(logits, drawn)

    def _draft(self, turn: ActiveTurn, share: int) -> Sequence[int]:
        """What may follow the last piece of a turn, of up to `share` tokens."""
        if self.drafts is None or len(turn.pieces) > 1 or turn.line not in self.lines:
            return ()
        kept = self._kept[turn.episode]
        most = min(kept.reach, turn.request.room - len(turn.tokens) - 1, share)
        return self.drafts.draft([*kept.tokens[-ORDER:], *turn.pieces[0]], most)

    def _note(self, kept: KeptContext, before: int) -> None:
        """Count the tokens of a context beyond `before`, and learn drafts from them."""
        if len(kept.tokens) > kept.prompt:
            self._new += max(0, len(kept.tokens) - max(kept.before, before))
        elif tuple(kept.tokens) in self._prompts:
            return
        else:
            self._prompts.add(tuple(kept.tokens))
        if self.drafts is not None:
            self.drafts.learn(kept.tokens, before)

    @torch.no_grad()
    def _draw(self, logits: torch.Tensor, turns: Sequence[ActiveTurn]) -> None:
        uniform = torch.cat([turn.uniforms[len(turn.tokens) :][: 1 + len(turn.draft)] for turn in turns])
        tokens, logp = draw(logits, self.sampling, uniform.to(logits.device), self.policy.engine.kernels)
        ended = (tokens[:, None] == self.ends.end_ids).any(-1)
        rows = zip(tokens.tolist(), logp.tolist(), ended.tolist(), strict=True)
        for turn in turns:
            self._take(turn, list(islice(rows, 1 + len(turn.draft))))

    def _take(self, turn: ActiveTurn, rows: Sequence[tuple[int, float, bool]]) -> None:
        """Take the tokens that were drawn for a turn, with their log-probabilities and whether they end it: those up to
        the first that its draft does not have. What was read after it is forgotten."""
        accepted = 0
        for accepted, (token, logp, end) in enumerate(rows):
            turn.tokens.append(token)
            turn.logp.append(logp)
            self._sampled += 1
            done = end or bool(self.sampling.stop and self._stops(turn))
            if done or len(turn.tokens) == turn.request.room:
                turn.request.reply.set_result(self._completion(turn, done))
                break
            if accepted == len(turn.draft) or turn.draft[accepted] != token:
                turn.pieces.append((token,))
                break
        kept, rejected = self._kept[turn.episode], len(turn.draft) - accepted
        kept.tokens += turn.draft[:accepted]
        self.lines.cut(turn.line, rejected)
        if self.drafts is not None and turn.draft:
            self.drafts.accepted += accepted
            self.drafts.rejected += rejected
            kept.reach = max(SHORTEST, accepted) if rejected else min(2 * kept.reach, LONGEST)

    def _stops(self, turn: ActiveTurn) -> bool:
        response, row = torch.tensor([turn.tokens], device=self.policy.device), torch.zeros(1, dtype=torch.long)
        return bool(self.ends.reached(response, row.to(response.device), len(turn.tokens)))

    def _completion(self, turn: ActiveTurn, terminated: bool) -> SampledCompletion:
        text = text_of(turn.tokens, self.policy.tokenizer, self.policy.end_ids, self.sampling.stop)
        versions = (self.version,) * len(turn.tokens)
        return SampledCompletion(tuple(turn.tokens), tuple(turn.logp), terminated, text, versions)

    def _admit(self) -> None:
        """Start queued turns while there is room, at least one."""
        while self._queue and len(self._turns) < self.rows:
            request, name, number = self._queue[0]
            own = self._kept.get(episode_of(request.trace))
            known = 0 if own is None or own.line is None or not own.precedes(request) else len(own.tokens)
            wanted = len(request.tokens) - known + request.room
            if not self._make_room(wanted, episode_of(request.trace)) and self._turns:
                return
            self._queue.popleft()
            seeded = uniforms([row_seed(self.seed, name, number)], request.room)[0]
            line, pieces = self._pieces(request)
            self._turns.append(ActiveTurn(request, line, pieces, seeded))

    def _abandon(self, episode: Episode) -> None:
        """Forget the turn of an episode that has not been sampled."""
        self._turns = [turn for turn in self._turns if turn.episode != episode]
        self._queue = deque(item for item in self._queue if episode_of(item[0].trace) != episode)

    def _make_room(self, tokens: int, episode: Episode) -> bool:
        """Whether there is room for further tokens of an episode, after others are forgotten as needed."""
        tokens += sum(sum(map(len, t.pieces)) + t.request.room - len(t.tokens) for t in self._turns)
        active = {turn.episode for turn in self._turns}
        for other, kept in self._kept.items():
            if self.lines.tokens + tokens <= self.room:
                break
            if kept.line is not None and other not in active and other != episode:
                self.lines.drop(kept.line)
                kept.line = None
        return self.lines.tokens + tokens <= self.room

    def _pieces(self, request: TurnRequest) -> tuple[int, deque[Sequence[int]]]:
        """The line of a request, and what it has to read: what is new, or the whole context, whose prompt is a piece of
        its own, as the trainer reads it."""
        episode, tokens = episode_of(request.trace), request.tokens
        kept = self._kept.pop(episode, None)
        goes_on = kept is not None and kept.precedes(request)
        if kept is not None and kept.line is not None:
            if goes_on:
                self._kept[episode] = kept
                return kept.line, deque([tokens[len(kept.tokens) :]])
            self.lines.drop(kept.line)
        before = 0 if kept is None or not goes_on else max(kept.before, len(kept.tokens))
        line = next(self._numbers)
        self._kept[episode] = KeptContext(line, request.prompt, before=before)
        return line, deque(piece for piece in (tokens[: request.prompt], tokens[request.prompt :]) if piece)
