"""Fitted temperatures, kept in a file beside facetline.toml: evaluator's name → what was fitted, on what, how well.

`facetline evaluate --fit-temperature --write` writes it; the factory reads it when it makes an embedded evaluator. The
temperature becomes part of the evaluator's identity, so that a new fit makes older answers outdated.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from facetline.evaluators.embedded.calibration import Calibration
from facetline.facets import private_files
from facetline.facets.errors import InvalidDefinition

FILE = "facetline.temperatures.json"
BYTES_MAX = 1024 * 1024

_fits: TypeAdapter[dict[str, Calibration]] = TypeAdapter(dict[str, Calibration])


def read(folder: Path) -> dict[str, Calibration]:
    """Return what was fitted for the evaluators of the project in `folder`; nothing when there is no file.

    Raises:
        InvalidDefinition: the file cannot be read.
    """
    path = folder / FILE
    try:
        with private_files.open_regular(path) as file:
            text = file.read(BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidDefinition([f"{path} cannot be read: {error.strerror or error}"]) from error
    try:
        return _fits.validate_json(text)
    except ValidationError as error:
        first = str(error).split("\n", 1)[0]
        fix = "fit again with 'facetline evaluate --fit-temperature --write', or delete the file"
        raise InvalidDefinition([f"{path} is damaged ({first}); {fix}"]) from error


def write(folder: Path, fitted: Mapping[str, Calibration]) -> Path:
    """Add these fits to the file, in place of earlier ones of the same evaluators; return its path.

    Raises:
        InvalidDefinition: what is there cannot be read.
        OSError: the file cannot be written; what was there is still there.
    """
    path = folder / FILE
    together = {**read(folder), **fitted}
    fields = {name: together[name].model_dump(mode="json") for name in sorted(together)}
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    draft.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)
    return path
