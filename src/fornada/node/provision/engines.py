"""What an engine's own code imports: packages that a model needs without naming them."""

from collections.abc import Mapping
from typing import NamedTuple

from fornada.core.specs import Engine
from fornada.node.provision.requirements import Requirement, parse_requirements


class EngineNeed(NamedTuple):
    """One package of an engine. A model that names it, or one of `instead`, gets its own choice and not this pin."""

    requirement: str
    instead: tuple[str, ...] = ()


NUMPY = EngineNeed("numpy==2.4.6")

ENGINE_NEEDS: Mapping[Engine, tuple[EngineNeed, ...]] = {
    "python": (),
    "tensorflow": (EngineNeed("tensorflow-cpu==2.21.0", instead=("tensorflow", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu")),),
    "litert": (EngineNeed("ai-edge-litert==2.3.0", instead=("tflite-runtime", "ai-edge-litert-nightly")), NUMPY),
    "onnx": (EngineNeed("onnxruntime==1.32.0", instead=("onnxruntime-gpu", "onnxruntime-openvino")), NUMPY),
    "torch": (EngineNeed("torch==2.13.0"), NUMPY),
    "gguf": (EngineNeed("xllamacpp==2026.10.11549", instead=("llama-cpp-python",)),),
    "command": (),
}


def with_engine(engine: Engine, own: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """The model's requirements and those of its engine that it doesn't name itself."""
    named = {requirement.name for requirement in own}
    missing = [need.requirement for need in ENGINE_NEEDS[engine] if not named & alternatives(need)]
    return own + parse_requirements(missing, where="the engine's own needs")


def alternatives(need: EngineNeed) -> set[str]:
    """Names of which one is enough."""
    (requirement,) = parse_requirements([need.requirement], where="the engine's own needs")
    return {requirement.name, *need.instead}
