"""The secret keys of a server: given by the operator, or generated once in a file of the data folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ...store.folder import open_file, read_file
from ..config.settings import Settings, SettingsError
from .sealer import NoSecretKey, SealingKey, sealing_key

KEY_FILE = "secret.key"
"""The file of the data folder with the generated keys."""
SHORTEST_SECRET_KEY = 32
"""Minimum length of a secret key, in characters: a shorter one could be guessed from a stolen copy."""
RESET = "If that key is lost, `holdfast secrets reset` deletes what is sealed, and nothing else."


class SecretKeys:
    """All keys that a server may use.

    The keys of the operator come first (`secret_key`, `secret_key_file`), then the cluster key, then the file of the
    data folder. So secrets that were sealed with an earlier key can be opened after a new one is set. Servers that
    share a store have no file: each would generate another key.
    """

    def __init__(self, settings: Settings, folder: Path | None, *, cluster_key: str | None = None) -> None:
        """`SettingsError` if a given key is unusable. Blocks on the disk.

        `cluster_key` replaces that of the settings, for a key that does not last and must not seal.
        """
        given_keys(settings)
        self._settings = settings
        self._cluster_key = settings.cluster_key if cluster_key is None else cluster_key
        self.file = None if folder is None or settings.store else SecretKeyFile(folder)

    def read(self) -> Sequence[SealingKey]:
        """Return the current keys. Blocks on the disk."""
        texts = [*given_keys(self._settings), *filter(None, [self._cluster_key])]
        return [sealing_key(text) for text in (*texts, *(self.file.read() if self.file else ()))]

    def first(self) -> SealingKey:
        """Return the key that seals. If there is none, create the file. Blocks on the disk."""
        if keys := self.read():
            return keys[0]
        if self.file is None:
            raise NoSecretKey(
                "Set the same HOLDFAST_SECRET_KEY, or cluster_key, on every server first: it encrypts the keys of "
                "providers."
            )
        return sealing_key(self.file.make()[0])

    def advice(self) -> str:
        """Return the advice for a missing key."""
        if self.file is None:
            names = "HOLDFAST_SECRET_KEY, HOLDFAST_SECRET_KEY_FILE or HOLDFAST_CLUSTER_KEY"
            return f"Give every server the key that has sealed it, by {names}. {RESET}"
        return (
            f"Put the key back: it was in {self.file.path}, or in HOLDFAST_SECRET_KEY or HOLDFAST_SECRET_KEY_FILE. "
            f"{RESET}"
        )


class SecretKeyFile:
    """`secret.key` in the data folder: one key to a line, for its owner only."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / KEY_FILE

    def read(self) -> list[str]:
        """Return the keys; none if there is no file. Blocks on the disk."""
        content = read_file(self.path)
        return [] if content is None else _parsed(content.decode("utf-8", "replace"), str(self.path))

    def make(self) -> list[str]:
        """Return the keys. If there is no file, create it with a new key."""
        while not (texts := self.read()):
            with suppress(FileExistsError):  # another process was faster
                self._write([new_secret_key()], os.link)
        return texts

    def replace(self, texts: Sequence[str]) -> None:
        """Write other keys, all or none of them."""
        self._write(texts, os.replace)

    def _write(self, texts: Sequence[str], put: Callable[[Path, Path], None]) -> None:
        part = self.path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}.new")
        try:
            with os.fdopen(open_file(part, os.O_WRONLY | os.O_EXCL), "w") as file:
                file.write("".join(f"{text}\n" for text in texts))
                file.flush()
                os.fsync(file.fileno())
            put(part, self.path)
        finally:
            part.unlink(missing_ok=True)


def new_secret_key() -> str:
    """Return a new key, of 256 random bits."""
    return secrets.token_hex(32)


def given_keys(settings: Settings) -> list[str]:
    """Return the keys that the operator has given. Blocks on the disk if they are in a file."""
    if settings.secret_key:
        return _parsed(settings.secret_key.replace(",", "\n"), "The setting `secret_key`")
    if not settings.secret_key_file:
        return []
    path = Path(settings.secret_key_file).expanduser()
    try:
        texts = _parsed(path.read_text(), f"{path} (`secret_key_file`)")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"The secret key in {path} (`secret_key_file`) cannot be read: {why}.") from None
    if not texts:
        raise SettingsError(f"{path} (`secret_key_file`) has no key. Make one with: openssl rand -hex 32")
    return texts


def _parsed(content: str, where: str) -> list[str]:
    """Return the keys in a text, one to a line. An error does not show them."""
    texts = [line.strip() for line in content.splitlines() if line.strip()]
    if any(len(text) < SHORTEST_SECRET_KEY for text in texts):
        raise SettingsError(
            f"{where} has a key of fewer than {SHORTEST_SECRET_KEY} characters, so it can be guessed. "
            "Make one with: openssl rand -hex 32"
        )
    return texts
