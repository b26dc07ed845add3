"""Models as `models/search` shows them: Workers AI's items, and those of marketplaces (`format=openrouter`)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fornada.core.finetunes import shows_adapters
from fornada.core.ports import Entry, Version
from fornada.core.specs import ModelSpec
from fornada.edge.catalog_entries import created_text
from fornada.edge.tasks import named_id, task_of

SOURCE = 1
"""What Cloudflare calls the source of its own models; everything here is the node's own."""
USD_PER_NEURON = 0.000011
"""WORKERS_AI.md, 12: for formats that know no other currency."""
_GGUF_CONTEXT = 4096
"""fornada_sdk.runner.engines.gguf.DEFAULT_CONTEXT: what a model of that engine has that says nothing."""
_PER_MILLION = {"token": "tokens", "input_token": "input tokens", "output_token": "output tokens"}
_MODALITIES = {
    "text-generation": (["text"], ["text"]),
    "image-to-text": (["text", "image"], ["text"]),
    "text-to-image": (["text"], ["image"]),
    "automatic-speech-recognition": (["audio"], ["text"]),
    "text-to-speech": (["text"], ["audio"]),
    "text-embeddings": (["text"], ["embeddings"]),
    "image-classification": (["image"], ["text"]),
    "object-detection": (["image"], ["text"]),
}


def item(entry: Entry) -> dict[str, Any]:
    """Workers AI's own form."""
    spec = entry.stable.spec
    return {
        "id": named_id("model", entry.name),
        "source": SOURCE,
        "name": entry.name,
        "description": spec.description,
        "task": task_of(spec.task).public(),
        "created_at": created_text(entry),
        "tags": [],
        "properties": [{"property_id": name, "value": value} for name, value in _properties(entry.stable).items()],
    }


def openrouter_item(entry: Entry) -> dict[str, Any]:
    """A marketplace's form: prices in US dollars for each unit, as texts."""
    spec = entry.stable.spec
    known = _properties(entry.stable)
    inputs, outputs = _MODALITIES.get(spec.task, (["text"], ["text"]))
    features = [name for name, property in (("tools", "function_calling"), ("reasoning", "reasoning")) if known.get(property) == "true"]
    context = known.get("context_window", known.get("max_input_tokens", ""))
    return {
        "id": entry.name,
        "name": entry.name,
        "description": spec.description,
        "created": int(entry.stable.created),
        "input_modalities": [*inputs, *(["image"] if known.get("vision") == "true" and "image" not in inputs else [])],
        "output_modalities": outputs,
        "context_length": int(context) if context.isdecimal() else None,
        "max_output_length": int(context) if context.isdecimal() and spec.task == "text-generation" else None,
        "pricing": _dollars(spec.price),
        "supported_features": features,
        "supported_sampling_parameters": _SAMPLING if spec.task == "text-generation" else [],
    }


_SAMPLING = [
    "temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty",
]  # fmt: skip


def is_experimental(spec: ModelSpec) -> bool:
    """Its author calls it a beta."""
    return spec.properties.get("beta") == "true"


def is_deprecated(spec: ModelSpec, *, now: float) -> bool:
    """The day that its author has named for its end has come."""
    day = spec.properties.get("planned_deprecation_date", "")
    return bool(day) and day <= datetime.fromtimestamp(now, UTC).date().isoformat()


def _properties(version: Version) -> dict[str, Any]:
    """What is known of it by itself, then what its author says."""
    spec = version.spec
    found: dict[str, Any] = {"async_queue": "true"}
    if spec.engine == "gguf" and spec.task == "text-generation":
        context = spec.settings.get("context", _GGUF_CONTEXT)
        found |= {"context_window": str(context), "function_calling": "true"}
    if shows_adapters(version):
        found["lora"] = "true"
    if spec.license:
        found["license"] = spec.license
    if spec.aliases:
        found["aliases"] = ", ".join(spec.aliases)
    found |= spec.properties
    if spec.price:
        found["price"] = [_price(unit, price) for unit, price in spec.price.items()]
    return found


def _price(unit: str, price: float) -> dict[str, Any]:
    if unit in _PER_MILLION:
        return {"unit": f"per M {_PER_MILLION[unit]}", "price": price * 1_000_000, "currency": "neurons"}
    return {"unit": "per inference request" if unit == "request" else f"per {unit}", "price": price, "currency": "neurons"}


def _dollars(price: Mapping[str, float]) -> dict[str, str]:
    both = price.get("token", 0.0)
    units = {"prompt": price.get("input_token", both), "completion": price.get("output_token", both)}
    units |= {name: price.get(name, 0.0) for name in ("request", "image")}
    return {name: f"{neurons * USD_PER_NEURON:.12f}".rstrip("0").rstrip(".") or "0" for name, neurons in units.items()}
