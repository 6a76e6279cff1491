"""The settings of verbs in which a policy learns from its own answers, round by round."""

from dataclasses import dataclass, field

from tutelage.base.config.limits import at_least
from tutelage.base.config.pieces import Sampling
from tutelage.base.config.servers import RolloutServers
from tutelage.base.config.trust import TrustSettings
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class RoundSettings(RolloutServers, TrustSettings):
    """Rounds of answering, scoring and learning from that."""

    prompts: str = ""
    """Prompts to answer: a file or hub data set; any format of demonstrations or preferences serves too."""
    reward: tuple[str, ...] = ()
    """What scores the answers: reward-model folders or module:function(prompts, answers) -> scores, each with an
    optional =weight; several add up."""
    rounds: int = 1
    """Rounds; each begins with answers of the policy as it is then."""
    prompts_per_round: int = 0
    """Prompts that are answered in a round; 0 for all."""
    samples: int = 8
    """Answers to each of them."""
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        at_least(self, rounds=1, prompts_per_round=0, samples=2)
        self.check_servers()
        self.check_trust()
        if self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all answers to a prompt are the same, and none is better: use 0.7 or 1."
            )
