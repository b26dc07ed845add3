"""Who has to go, and how far down, so that somebody else fits.

The value of a holder is what its absence would cost: expected requests a second x seconds of stepping down and coming back
(GreedyDual-Size-Frequency: Cherkasova, HPL-98-69R1, with a decayed rate in the place of the ageing count). Victims are taken by value for
what they relieve, those that turn out to be superfluous are spared, and of several such sets the one that costs least is chosen.
"""

from collections.abc import Callable, Sequence

from fornada.core.policy.ladder import Rung, loss_of_sleep, resting_rung
from fornada.core.policy.memory import DeviceRoom, Holding, Need, Phase
from fornada.core.policy.picture import Case, Move, Picture


def choose(picture: Picture, need: Need, device: DeviceRoom) -> list[Move] | None:
    """Of which none is superfluous, empty if what is under way suffices; None if all of them together don't help."""
    case = picture.case(need, device)
    if case.fits(()) and case.houses(()):
        return []
    able = [holding for holding in picture.staying if may_go(holding, need)]
    for rung_of in (_preferred, _stopped):
        cover = _cheapest_cover(case, [Move(holding, rung_of(holding)) for holding in able])
        housed = _house(case, cover, able) if cover is not None else None
        if housed is not None:
            return housed
    return None


def may_go(holding: Holding, need: Need) -> bool:
    """Never who is kept, comes up or goes already; never for a wish that is younger than its own oldest waiting request; and who was just
    brought in serves before it goes, unless those who wanted it have left."""
    if holding.kept or holding.phase not in (Phase.IDLE, Phase.BUSY, Phase.ASLEEP) or holding.key == need.key:
        return False
    if holding.oldest_waiting is not None and holding.oldest_waiting < need.since:
        return False
    return holding.served or holding.phase is Phase.ASLEEP or (holding.phase is Phase.IDLE and holding.oldest_waiting is None)


def _preferred(holding: Holding) -> Rung:
    return Rung.STOPPED if holding.phase is Phase.ASLEEP else resting_rung(holding.ladder)


def _stopped(holding: Holding) -> Rung:
    return Rung.STOPPED


def _cheapest_cover(case: Case, moves: list[Move]) -> list[Move] | None:
    """Of two greedy covers the one with fewer busy ones in it, then the lower loss. By loss for relief small holders go first, also where
    one large one would be cheaper than all of them; by loss alone a large one goes where a small one would do."""
    if not case.fits(moves):
        return None
    relief = {move.holding.key: case.relief(move) for move in moves}
    useful = [move for move in moves if relief[move.holding.key] > 0]

    def cover(price: Callable[[Move], float]) -> list[Move]:
        ordered = sorted(useful, key=lambda move: (*_last(move, case.need), price(move), move.holding.last_used, move.holding.key))
        return _spare(_take(ordered, case.fits), case.fits)

    covers = [cover(lambda move: move.loss / relief[move.holding.key]), cover(lambda move: move.loss)]
    return min(covers, key=lambda cover: (sum(move.busy for move in cover), sum(move.loss for move in cover)))


def _last(move: Move, need: Need) -> tuple[bool, bool]:
    """Another version of the same model last, idle before busy."""
    return move.holding.model == need.model, move.busy


def _house(case: Case, cover: list[Move], able: Sequence[Holding]) -> list[Move] | None:
    """The cover, with so many stopped rather than put to sleep, or stopped in their sleep, that the host holds those who are asleep then:
    the least loss for the bytes first."""
    if case.houses(cover):
        return cover
    own = {move.holding.key for move in cover}
    further = [Move(holding, Rung.STOPPED) for holding in able if holding.phase is Phase.ASLEEP and holding.key not in own]
    lower = [Move(move.holding, Rung.STOPPED) for move in cover if move.to is Rung.ASLEEP]
    by_price = sorted([*further, *lower], key=lambda move: (_host_price(move), move.holding.last_used, move.holding.key))

    def merged(stops: Sequence[Move]) -> list[Move]:
        instead = {move.holding.key: move for move in stops}
        return [instead.pop(move.holding.key, move) for move in cover] + list(instead.values())

    def suffices(stops: Sequence[Move]) -> bool:
        return case.houses(merged(stops))

    return merged(_spare(_take(by_price, suffices), suffices)) if suffices(by_price) else None


def _host_price(move: Move) -> float:
    """Loss for each byte of the host."""
    ladder = move.holding.ladder
    return loss_of_sleep(ladder, rate=move.holding.rate) / max(1, ladder.asleep_host_bytes)


def _take(moves: Sequence[Move], suffices: Callable[[Sequence[Move]], bool]) -> list[Move]:
    """From the front, until it suffices. All of them have to."""
    taken: list[Move] = []
    for move in moves:
        if suffices(taken):
            break
        taken.append(move)
    return taken


def _spare(moves: list[Move], suffices: Callable[[Sequence[Move]], bool]) -> list[Move]:
    """Without those that aren't needed, the last one spared first."""
    for move in list(reversed(moves)):
        rest = [other for other in moves if other is not move]
        if suffices(rest):
            moves = rest
    return moves
