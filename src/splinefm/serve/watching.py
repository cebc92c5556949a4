"""Which files have changed, asked every now and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

Stamp = tuple[int, int, int] | None


class Watcher:
    """Looks at files; a change counts once the file has stayed the same for a whole pause.

    So a file that is being written is left alone. Replacing a file in one step, as `Fitted.save` does, is better still.

    Parameters
    ----------
    files : mapping of str to sequence of path
        The files of each arm; None for one that it does not have.
    """

    PAUSE = 0.5
    """Seconds between two looks."""

    def __init__(self, files: Mapping[str, Sequence[str | None]]) -> None:
        self._files = {name: [Path(path) for path in paths if path is not None] for name, paths in files.items()}
        self._known = {name: self._stamps(name) for name in self._files}
        self._last = dict(self._known)

    def changed(self) -> list[str]:
        """Arms whose files differ from those that were known, and from nothing since the last look."""
        found = []
        for name in self._files:
            now = self._stamps(name)
            if now != self._known[name] and now == self._last[name] and None not in now:
                self._known[name] = now
                found.append(name)
            self._last[name] = now
        return found

    def _stamps(self, name: str) -> list[Stamp]:
        return [stamp_of(path) for path in self._files[name]]


def stamp_of(path: Path) -> Stamp:
    """What changes when a file does; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
