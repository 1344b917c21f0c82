"""Labels of a node that describe its GPUs, for selectors. Pure.

A label says one thing of all GPUs of the node, so a node of several products says `mixed`, and as
memory that of its smallest.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpumanager.gpu.values import Gpu
from gpumanager.names import (
    LABEL_COUNT,
    LABEL_CUDA,
    LABEL_DRIVER,
    LABEL_MEMORY,
    LABEL_MODEL,
    LABEL_PRODUCT,
)
from gpumanager.units import MIB

log = logging.getLogger(__name__)

MIXED: Final = "mixed"
LABEL_LETTERS: Final = 63
LONGEST_PREFIX: Final = 253
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?",
    re.ASCII,
)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?", re.ASCII)
_MODEL_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Software:
    """Versions, as the driver has them: `555.58.02`, `12.5`; empty where not known."""

    driver: str = ""
    cuda: str = ""


def node_labels(
    gpus: tuple[Gpu, ...], software: Software, asked: Mapping[str, str]
) -> dict[str, str]:
    """Return all labels of the node. asked: what --node-labels says."""
    labels = {LABEL_COUNT: str(len(gpus)), **asked}
    if gpus:
        products = {label_value(gpu.model) for gpu in gpus}
        labels[LABEL_PRODUCT] = products.pop() if len(products) == 1 else MIXED
        labels[LABEL_MEMORY] = str(min(gpu.memory for gpu in gpus) // MIB)
        if LABEL_MODEL in asked:
            labels[LABEL_MODEL] = original_model(gpus[0].model)
    versions = {LABEL_DRIVER: software.driver, LABEL_CUDA: software.cuda}
    return labels | {name: label_value(text) for name, text in versions.items() if text}


def original_model(product: str) -> str:
    """Return the original's label: the second of three words or more, `M40` of `Tesla M40 24GB`.

    Where that word is no model (`GeForce`) or there are fewer, which it got wrong: the product.
    """
    words = product.split()
    if len(words) >= _MODEL_WORDS and any(letter.isdigit() for letter in words[1]):
        return label_value(words[1])
    return label_value(product)


def label_value(text: str) -> str:
    """`text` as a label may have it."""
    spelled = re.sub(r"[^-\w.]+", "-", text, flags=re.ASCII)[:LABEL_LETTERS]
    return spelled.strip("-_.")


def parse_node_labels(text: str) -> dict[str, str]:
    """`k=v,k2=v2` of --node-labels; an invalid label is left out and logged, as in gpu-manager."""
    labels = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (word.strip() for word in item.partition("="))
        prefix, _, name = key.rpartition("/")
        fits = len(prefix) <= LONGEST_PREFIX and max(len(name), len(value)) <= LABEL_LETTERS
        if equals and fits and _KEY.fullmatch(key) and _VALUE.fullmatch(value):
            labels[key] = value
        else:
            log.warning("--node-labels: ignoring %r: write KEY=VALUE", item)
    return labels
