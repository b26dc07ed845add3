"""How the reasons of one model name others: by their names, unless somebody hears them who isn't to know of these."""

from collections.abc import Iterable

from fornada.core.policy.memory import Holding, Need

ANOTHER = "another model"


def named(need: Need, holdings: Iterable[Holding]) -> str:
    """Their models, each once, for whoever is told why `need` waits."""
    models = {holding.model: holding.known_to in ("", need.known_to) for holding in holdings}
    shown = sorted(model for model, known in models.items() if known)
    hidden = len(models) - len(shown)
    others = [ANOTHER if hidden == 1 else f"{hidden} other models"] if hidden else []
    return ", ".join([*shown, *others])
