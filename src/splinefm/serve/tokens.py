"""Bearer tokens from a file, and the roles that they give."""

from __future__ import annotations

import hmac
from pathlib import Path

from splinefm._files import read_text
from splinefm.serve.logs import log_event

_SHORTEST = 16
_MAX_BYTES = 1 << 20


class Tokens:
    """The tokens of a file, read again when it changes.

    A line holds a token; `admin ` before it allows changes of models and weights too. Empty lines and those that begin
    with # do not count.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._problem = ""
        self._known: list[tuple[bytes, bool]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it changed; keep the known tokens if it cannot be read, and log why, once."""
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._stamp:
                self._known = parse_tokens(read_text(self._path, "a file of tokens", _MAX_BYTES), str(self._path))
                self._stamp = stamp
            self._problem = ""
        except (OSError, ValueError) as error:
            if self._stamp is None:
                raise
            if str(error) != self._problem:
                self._problem = str(error)
                log_event("tokens not read", "warning", reason=self._problem, tokens="those that were read last")

    def role(self, header: bytes | None) -> str | None:
        """The role of an Authorization header: "admin", "user", or None for an unknown token.

        All tokens are compared, in constant time: how long it takes says nothing about them.
        """
        scheme, _, given = (header or b"").partition(b" ")
        found = None
        for token, is_admin in self._known:
            if hmac.compare_digest(token, given.strip()) and scheme.lower() == b"bearer":
                found = "admin" if is_admin else "user"
        return found


def parse_tokens(text: str, where: str) -> list[tuple[bytes, bool]]:
    """Tokens and whether they are an administrator's.

    Examples
    --------
    >>> parse_tokens("# ours\\nadmin 0123456789abcdef\\nfedcba9876543210", "tokens")
    [(b'0123456789abcdef', True), (b'fedcba9876543210', False)]
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        is_admin = words[0] == "admin" and len(words) == 2
        if len(words) > 1 + is_admin or len(words[-1]) < _SHORTEST or not words[-1].isascii():
            raise ValueError(
                f"line {number} of {where!r} is not a token: write one token per line, of at least {_SHORTEST} "
                "characters without spaces, such as `openssl rand -hex 32` prints; 'admin ' before it allows changes"
            )
        found.append((words[-1].encode(), is_admin))
    if not found:
        raise ValueError(f"{where!r} has no token; write one per line")
    return found
