"""Whose fault it is, and whether to try again.

    FornadaError
    ├── CallerFault          the request can't be served as it is; trying again won't help
    │   ├── BadRequest         5006  fails the schema, a broken body, model code raised BadRequest
    │   ├── JsonModeUnmet      5024  the model's text is no JSON, and JSON was asked for
    │   ├── UnknownModel       5007
    │   ├── UnknownJob         5012
    │   ├── UnknownFile        5013
    │   ├── UnknownFinetune    5014
    │   ├── FinetuneIncomplete 3039  a file of the adapter is missing
    │   ├── TooManyFinetunes   5015  the account has as many as it may
    │   ├── LoraUnsupported    5005  the model's engine applies no adapters
    │   ├── UnknownResponse    5017
    │   ├── UnknownGateway     2001
    │   ├── UnknownLog         2002  of a gateway
    │   ├── UnknownRoute       7000
    │   ├── MethodNotAllowed   7001
    │   ├── TooLarge           3006  names the limit
    │   ├── HeadersTooLarge    3005
    │   ├── TooSlow            3007  the request itself did not arrive in time
    │   ├── Unauthorized      10000
    │   ├── Forbidden         10000
    │   ├── ForeignOrigin      3105
    │   ├── ModelNotAllowed    5018  somebody else's model
    │   ├── RateLimited        3106  requests of a minute used up; `retry_after_s` says when
    │   ├── QuotaUsedUp        3036  neurons of the day used up; never retried
    │   ├── InvalidSpec        5010  model.toml, bundle or dependencies; the model's author can mend it
    │   └── Conflict           5011  the state forbids it
    ├── NoCapacity           ours, for now; `retry_after_s` says when
    │   ├── Busy               3040  queue full, no room, wait predicted beyond the bound
    │   ├── DeadlinePassed     3046  never retried
    │   ├── Unavailable        3100  starting or draining
    │   ├── NeverFits          3104  both numbers; never retried
    │   └── DiskFull           3107  names the directory
    ├── ModelFault           the author's
    │   ├── RunnerDied         3101
    │   ├── LoadFailed         3102  backing off; reason and last stderr line
    │   ├── ModelRaised        3103
    │   └── OutOfDeviceMemory  3104  after the one retry; both numbers
    └── InternalFault        3199  our bug

Codes are those of the Workers AI contract where it has one. HTTP statuses live in edge.problems alone.
"""

from typing import ClassVar


class FornadaError(Exception):
    """Base of every refusal that may reach a caller. The message is one line for people; it never holds inputs or keys."""

    code: ClassVar[int]
    retry: ClassVar[bool | None] = None
    """What `x-should-retry` says; None leaves it to the client."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class CallerFault(FornadaError):
    """The caller must change the request."""


class BadRequest(CallerFault):
    """The input fails the model's schema, the body is broken, or model code refused this item."""

    code = 5006


class JsonModeUnmet(CallerFault):
    """JSON was asked for and the model's text is none, mostly because `max_tokens` cut it off."""

    code = 5024


class UnknownModel(CallerFault):
    """No model, alias, label or version of that name. The message names one that is spelled alike, where there is one."""

    code = 5007

    def __init__(self, message: str, *, nearest: str = "") -> None:
        super().__init__(f"{message}; did you mean '{nearest}'?" if nearest else message)
        self.nearest = nearest


class UnknownJob(CallerFault):
    """No job of that id, or somebody else's, or one that has been forgotten since it ended."""

    code = 5012


class UnknownFile(CallerFault):
    """No file of that id, or somebody else's, or one that has been forgotten."""

    code = 5013


class UnknownFinetune(CallerFault):
    """No fine-tune of that id or name, or somebody else's that isn't public."""

    code = 5014


class FinetuneIncomplete(CallerFault):
    """The fine-tune's files haven't all been uploaded."""

    code = 3039


class TooManyFinetunes(CallerFault):
    """The account has as many fine-tunes as it may."""

    code = 5015


class LoraUnsupported(CallerFault):
    """The model applies no adapters."""

    code = 5005


class UnknownResponse(CallerFault):
    """No response of that id, or somebody else's, or one that wasn't stored or has been forgotten."""

    code = 5017


class UnknownGateway(CallerFault):
    """The account has no AI gateway of that id."""

    code = 2001


class UnknownLog(CallerFault):
    """The gateway has no log of that id, or it is another key's, or it has been forgotten."""

    code = 2002


class UnknownRoute(CallerFault):
    """No route for that URI."""

    code = 7000


class MethodNotAllowed(CallerFault):
    """The route exists, for other methods."""

    code = 7001


class TooLarge(CallerFault):
    """The body exceeds a limit, which the message names."""

    code = 3006


class HeadersTooLarge(CallerFault):
    """Request line or headers exceed their limit."""

    code = 3005


class TooSlow(CallerFault):
    """The request's headers or body didn't arrive in time."""

    code = 3007


class Unauthorized(CallerFault):
    """No credentials, or unknown ones."""

    code = 10000


class Forbidden(CallerFault):
    """Known credentials without the role or the account."""

    code = 10000


class ForeignOrigin(CallerFault):
    """Host or Origin isn't local in open mode: DNS rebinding or a drive-by page."""

    code = 3105


class ModelNotAllowed(CallerFault):
    """The model belongs to another account."""

    code = 5018


class RateLimited(CallerFault):
    """The key or its account has sent its requests of a minute."""

    code = 3106


class QuotaUsedUp(CallerFault):
    """The key or its account has used its neurons of the day (UTC)."""

    code = 3036
    retry = False


class InvalidSpec(CallerFault):
    """A model folder, its model.toml or its dependencies can't be accepted; the message says what to change."""

    code = 5010


class Conflict(CallerFault):
    """The model's state forbids what was asked."""

    code = 5011


class NoCapacity(FornadaError):
    """Ours, for now."""


class Busy(NoCapacity):
    """Queue full, no room, or a wait beyond the bound."""

    code = 3040


class DeadlinePassed(NoCapacity):
    """The request's own deadline went by. `begun`: while the model worked on it, not while it waited for that."""

    code = 3046
    retry = False

    def __init__(self, message: str, *, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


class Unavailable(NoCapacity):
    """The node is starting or draining."""

    code = 3100


class NeverFits(NoCapacity):
    """The model can't ever fit this node; the message holds both numbers."""

    code = 3104
    retry = False


class DiskFull(NoCapacity):
    """No space left, or the disk budget is used up; the message names the directory."""

    code = 3107


class ModelFault(FornadaError):
    """The model's author must change something."""


class RunnerDied(ModelFault):
    """The runner's process ended under the request."""

    code = 3101


class LoadFailed(ModelFault):
    """The model could not be built or loaded; it backs off until `retry_after_s`."""

    code = 3102


class ModelRaised(ModelFault):
    """Model code raised something other than BadRequest."""

    code = 3103


class OutOfDeviceMemory(ModelFault):
    """Device memory ran out, also after the one retry; the message holds both numbers."""

    code = 3104


class InternalFault(FornadaError):
    """Our bug. The log holds the rest under the request's id."""

    code = 3199
