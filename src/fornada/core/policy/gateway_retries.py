"""When a gateway tries a request again, and after how long."""

from fornada.core.errors import FornadaError, InternalFault, ModelFault, NoCapacity
from fornada.core.gateway import MOST_KEPT_DELAY_MS, Backoff, Rules


def wait_ms(rules: Rules, attempt: int) -> int:
    """Milliseconds after the failure of attempt number `attempt`, from 1 on."""
    match rules.backoff:
        case Backoff.CONSTANT:
            times = 1
        case Backoff.LINEAR:
            times = attempt
        case Backoff.EXPONENTIAL:
            times = 2 ** (attempt - 1)
    return min(rules.delay_ms * times, MOST_KEPT_DELAY_MS)


def tries_again(rules: Rules, attempt: int, error: FornadaError | None) -> bool:
    """Whether an attempt follows number `attempt`, which has failed. `error` None: it took too long to begin to answer."""
    return attempt < rules.attempts and (error is None or may_pass(error))


def may_pass(error: FornadaError) -> bool:
    """Whether the same request may fare better a moment later: what the caller has to mend, and what says so itself, doesn't."""
    return isinstance(error, NoCapacity | ModelFault | InternalFault) and error.retry is not False


def timeout_ms(rules: Rules, attempt: int) -> int | None:
    """Milliseconds that attempt number `attempt` has for its first byte; None: as long as it takes. The last one of several isn't hurried:
    whoever tries again wants an answer rather than none."""
    return rules.timeout_ms if attempt < rules.attempts or rules.attempts == 1 else None
