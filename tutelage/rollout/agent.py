"""An agent as an environment: a program that speaks to OpenAI's API, unchanged.

Each episode is a process of its own. It reads its row as JSON from standard input, and sends its requests to the
address of the policy, OPENAI_BASE_URL.
"""

import asyncio
import json
import os
import shlex
import shutil
import signal
import tempfile
from contextlib import suppress
from typing import IO

from tutelage.base.errors import TutelageError
from tutelage.data.records import message_row
from tutelage.rollout.episode_endpoint import LOCAL, EpisodeEndpoint, EpisodeSession
from tutelage.rollout.episodes import Episode, Row
from tutelage.rollout.tools.tool import Fault

TEMPORARY = 75
"""Exit status of a program that met a temporary failure, EX_TEMPFAIL of sysexits.h: a fault."""


class AgentProgram:
    """Environment whose episodes are processes of a command. It returns 0: its reward is that of the completion.

    A process that exits with TEMPORARY, or is killed by a signal, is a `Fault`; one that exits with any other status
    but 0 is an error of the program. All processes of its group end with the episode.

    Raises TutelageError if there is no such program.
    """

    def __init__(self, command: str) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise TutelageError(f"--agent {command!r} is no command line: {error}.") from error
        if not self.words or shutil.which(self.words[0]) is None:
            raise TutelageError(f"--agent {command!r}: there is no program {self.words[0] if self.words else ''!r}.")
        self.command = command
        self._endpoint = EpisodeEndpoint()

    async def __call__(self, row: Row, episode: Episode) -> float:
        """Play an episode."""
        asked = [message_row(message) for message in episode.messages]
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
            told.write(json.dumps({**row, "messages": asked}).encode())
            told.seek(0)
            async with self._endpoint.session(episode) as session:
                status = await self._run(session, told, errors)
                if status:
                    raise self._failure(status, session, _end_of(errors))
        return 0.0

    async def _run(self, session: EpisodeSession, told: IO[bytes], errors: IO[bytes]) -> int:
        """Exit status of a process. Raises what ends the episode before."""
        seed = str(session.episode.random.getrandbits(31))
        direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), LOCAL)))
        own = {"OPENAI_BASE_URL": session.url, "OPENAI_API_KEY": "tutelage", "TUTELAGE_SEED": seed}
        process = await asyncio.create_subprocess_exec(
            *self.words,
            stdin=told,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | own | {"NO_PROXY": direct, "no_proxy": direct},
            start_new_session=True,
        )
        try:
            return await session.result_of(process.wait())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _failure(self, status: int, session: EpisodeSession, errors: str) -> TutelageError:
        said = session.remark + (f" The end of its standard error:\n{errors}" if errors else "")
        if status == TEMPORARY or status < 0:
            how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
            return Fault(f"The agent {self.command!r} {how}.{said}")
        return TutelageError(
            f"The agent {self.command!r} exited with status {status}, an error of its own; status {TEMPORARY} is that "
            f"of a fault outside, after which the episode is played again.{said}"
        )


def _end_of(file: IO[bytes]) -> str:
    """The last 2,000 bytes of a file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 2_000))
    return file.read().decode(errors="replace").strip()
