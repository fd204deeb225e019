"""The other engines a run can be held against, by name: which modes they have, and how each is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from paceline.bench.peer import DRAFT, MODES, PLAIN, Peer, PeerError
from paceline.core.aliases import Json
from paceline.errors import UsageError


class TransformersPeer(Peer):
    """Hugging Face transformers with the model of a folder, or with a GGUF file's weights unpacked."""

    name, package, child = "transformers", "transformers", "paceline.bench.peer_transformers"
    cure = 'pip install "paceline[transformers]"'

    def check(self, file: Path) -> None:
        if not file.is_dir() and file.suffix != ".gguf":
            raise PeerError(f"{self.name} reads folders and GGUF files, `{file.name}` is neither")


PEERS: dict[str, tuple[type[Peer], tuple[str, ...]]] = {
    Peer.name: (Peer, tuple(MODES)),
    TransformersPeer.name: (TransformersPeer, (PLAIN, DRAFT, "lookup")),
}


@dataclass(slots=True)
class Company:
    """The peers that run, by name and mode, and why others do not."""

    running: dict[str, Peer] = field(default_factory=dict)
    about: Json = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def close(self) -> None:
        for peer in self.running.values():
            peer.close()


def parse_against(name: str) -> tuple[str, tuple[str, ...]]:
    """Split `llama.cpp:plain,draft` into the peer and its modes; without modes it is all of them.

    Raises:
        UsageError: no peer or mode goes by a name.
    """
    peer, colon, listed = name.partition(":")
    if peer not in PEERS:
        raise UsageError(f"--against must be one of {', '.join(PEERS)}, got `{peer}`")
    known = PEERS[peer][1]
    modes = tuple(listed.split(",")) if colon else known
    for mode in modes:
        if mode not in known:
            raise UsageError(f"{peer} has the modes {', '.join(known)}, got `{mode}`")
    return peer, modes


def start_peers(against: tuple[str, ...], file: Path, draft: Path | None, *, threads: int, context: int) -> Company:
    """Start every mode of every peer, each in a process of its own; what cannot be started is noted."""
    company = Company()
    try:
        for name in against:
            peer, modes = parse_against(name)
            for mode in modes:
                label = f"{peer} {mode}"
                if mode == DRAFT and draft is None:
                    company.missing[label] = "no draft model among the ways"
                    continue
                try:
                    running = PEERS[peer][0](file, threads, context, mode=mode, draft=draft if mode == DRAFT else None)
                except PeerError as error:
                    company.missing[label] = str(error)
                    if mode == PLAIN:
                        break  # the others would fail alike
                    continue
                company.running[label] = running
                company.about[peer] = running.about
    except BaseException:
        company.close()
        raise
    return company
