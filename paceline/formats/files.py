"""What the decoder's loader needs of a model on disk, whatever its format."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from paceline.errors import ModelFileError, ModelNotFound
from paceline.formats.gguf import GgufFile
from paceline.formats.safetensors import SafetensorsFolder
from paceline.formats.spec import ModelSpec
from paceline.formats.tensor_names import check_shapes, separate, shapes_of
from paceline.kernels.tensor import Tensor


class ModelFile(Protocol):
    """An open model. Tensors have GGUF's names and point into the file until it is closed."""

    @property
    def path(self) -> Path: ...
    @property
    def spec(self) -> ModelSpec: ...
    @property
    def metadata(self) -> dict[str, object]: ...
    @property
    def nbytes(self) -> int: ...
    def has(self, name: str) -> bool: ...
    def tensor(self, name: str) -> Tensor | None: ...
    def release(self, tensor: Tensor) -> None: ...
    def close(self) -> None: ...


def open_model(path: Path) -> ModelFile:
    """Open a GGUF file or a Hugging Face folder and check that its tensors make the model it says it is."""
    if not path.exists():
        raise ModelNotFound(f"wanted a model; there is nothing at `{path}`")
    if path.suffix == ".safetensors":
        raise ModelFileError(
            f"{path}: wanted a `.gguf` file or a folder; got one safetensors file",
            hint="give the folder, which also has config.json and tokenizer.json",
        )
    if not path.is_dir() and not path.is_file():
        raise ModelFileError(f"{path}: wanted a `.gguf` file or a folder; got a pipe or a device")
    file: GgufFile | SafetensorsFolder = SafetensorsFolder.open(path) if path.is_dir() else GgufFile.open(path)
    try:
        file.tensors = separate(file.spec, file.tensors)
        check_shapes(file.spec, {name: tensor.shape for name, tensor in file.tensors.items()}, path)
        for name in shapes_of(file.spec):
            file.tensor(name)
        tokens = file.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list) and len(tokens) > file.spec.vocab:
            raise ModelFileError(f"{path}: wanted at most {file.spec.vocab} tokens; got {len(tokens)}")
    except BaseException:
        file.close()
        raise
    return file
