# Written by scripts/interface.py.

from tutelage.rollout.server.nccl import nccl_handover as nccl_handover
from tutelage.rollout.server.probe import Probe as Probe
from tutelage.rollout.server.rollout_servers import RolloutServer as RolloutServer
from tutelage.rollout.server.rollout_servers import addresses as addresses
from tutelage.rollout.server.rollout_servers import connect as connect
from tutelage.rollout.server.server_generator import ServerGenerator as ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync as WeightSync
