# Written by scripts/interface.py.

from tutelage.core.rows import collate as collate
from tutelage.data.chat_tokens import pad_token_id as pad_token_id
from tutelage.models.budget import Budget as Budget
from tutelage.rollout.generator import encode_prompts as encode_prompts
from tutelage.rollout.local import LocalGenerator as LocalGenerator
from tutelage.train.learner import Learner as Learner
from tutelage.train.learner import Step as Step
from tutelage.train.rl.critic import make_critic as make_critic
from tutelage.train.rl.improve import improve as improve
from tutelage.train.rl.setup import RolloutSettings as RolloutSettings
from tutelage.train.run.folder import Run as Run
from tutelage.train.run.loop import Loop as Loop
from tutelage.train.run.loop import Training as Training
from tutelage.train.supervised.batches import Order as Order
from tutelage.train.supervised.batches import encode_demonstrations as encode_demonstrations
from tutelage.train.supervised.fit import WeightedRows as WeightedRows
from tutelage.train.supervised.fit import fit as fit
from tutelage.train.supervised.fit import imitate as imitate
