"""Temporary storage of uploaded files: one per owner, kept until the next upload, for an hour, or until the server
stops."""

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.data.tables import Table, table_of
from tutelage.people.validation import FieldError

ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
"""Accepted file types. None is compressed as a whole, which would allow decompression bombs."""
LONGEST_UPLOAD = 64 * 1024 * 1024
MOST_UNFOLDED = 512 * 1024 * 1024
"""Bytes to which an uploaded Parquet file may unfold."""
KEPT_SECONDS = 3_600.0


@dataclass(frozen=True)
class Upload:
    """An uploaded file: its original name, its path on disk, and the time of the upload."""

    token: str
    name: str
    path: Path
    at: float

    def read(self) -> Table:
        """The rows of the file, with errors under its original name. Raises FieldError if it is not a table."""
        try:
            return table_of(self.name, self.path.read_bytes(), most=MOST_UNFOLDED)
        except TutelageError as error:
            raise FieldError("file", error.args[0]) from error


class Uploads:
    """The uploads of one running application. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._kept: dict[int, Upload] = {}
        self._lock = threading.Lock()

    def keep(self, owner: int, name: str, content: bytes) -> Upload:
        """Store a file for an owner, replacing the previous one. Of its name only the extension is used. Raises
        FieldError if the file is empty or of an unsupported type."""
        name = Path(name.replace("\\", "/")).name[:100] or "file"
        ending = Path(name).suffix.lower()
        if ending not in ENDINGS:
            raise FieldError(
                "file",
                "%(name)s is of no kind that can be read here: use %(endings)s.",
                name=name,
                endings=", ".join(ENDINGS),
            )
        if not content.strip():
            raise FieldError("file", "%(name)s is empty.", name=name)
        with self._lock:
            self._forget()
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="tutelage-upload-", ignore_cleanup_errors=True)
            place = Path(self._folder.name) / str(owner)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            path = place / f"table{ending}"
            path.write_bytes(content)
            self._kept[owner] = Upload(secrets.token_urlsafe(16), name, path, self._clock())
            return self._kept[owner]

    def find(self, owner: int, token: str) -> Upload | None:
        """The owner's upload with that token; None if it belongs to another owner or has expired."""
        with self._lock:
            self._forget()
            upload = self._kept.get(owner)
        return upload if upload is not None and secrets.compare_digest(upload.token.encode(), token.encode()) else None

    def drop(self, owner: int) -> None:
        with self._lock:
            upload = self._kept.pop(owner, None)
        if upload is not None:
            shutil.rmtree(upload.path.parent, ignore_errors=True)

    def _forget(self) -> None:
        old = [owner for owner, each in self._kept.items() if each.at + KEPT_SECONDS <= self._clock()]
        for owner in old:
            shutil.rmtree(self._kept.pop(owner).path.parent, ignore_errors=True)
