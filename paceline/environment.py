"""The environment variables that Paceline reads, and what each does; the reference lists them."""

from __future__ import annotations

VARIABLES = {
    "PACELINE_HOME": "Folder for models and measurements; your cache folder if not set.",
    "PACELINE_ISA": "Instruction set of the kernels: avx512, avx2 or portable; the best there is if not set.",
    "PACELINE_MEMORY": "`off`: nothing that was learned of acceptance in earlier runs is used or kept.",
    "PACELINE_API_KEY": "The key that clients of `paceline serve` must show, without --api-key-file.",
    "HF_TOKEN": "Token for models whose publisher asks you to accept terms.",
    "HF_ENDPOINT": "Address of the hub, or of a mirror of it.",
    "NO_COLOR": "If set, nothing is coloured.",
    "TERM": "`dumb`: no colours, no line editor.",
}
