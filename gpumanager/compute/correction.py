"""What was measured against what was charged: the limiter's books of GPU time kept true.

A launch is charged by what timing events say of its kind, and events say elapsed time: a kernel
longer than the GPU's time slices looks longer than it was while neighbours had slices too, and one
whose length varies may go for less. NVML measures GPU time itself, but late, coarsely and only for
the past. Both together are enough, by one rule:

    what was measured lies between what was charged for work that has ended and all that was
    charged.

While it does, nothing is corrected, and no noise of a measurement gets into the books. When it does
not, the difference is what was charged wrongly, give or take the rounding to whole percents; it is
put right at once, so that no error adds up, and the ratio of the two since they last met says by
what all charges are to be scaled from now on. Whenever a container has nothing in flight both
bounds are one, so long kernels, which are the ones that need it, are corrected exactly.

Pure: times and amounts come in as numbers, ns all of them; times are of CLOCK_MONOTONIC.
"""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Final

from gpumanager.compute.account import (
    FORGETTING_NS,
    Account,
    Contact,
    Lesson,
    Reading,
    Sample,
    Variation,
)

MEMORY_NS: Final = 3_000_000_000
"""Readings are kept for as long; samples come later than what they tell of."""

IDLE_NS: Final = 2_000_000_000
"""Who was neither charged nor measured for as long has nothing in flight, whatever the books say: a
process that was killed cannot tell that its work has ended."""

NEW_NS: Final = 1_000_000
"""A meter that shows no more is new, and agrees with what is measured: nothing."""

SMOOTH: Final = 0.5
"""Percent. Samples that vary less tell nothing below their rounding; more, and it averages out:
rounding is noise like any other once what is rounded varies by half of its step."""
ROUNDING: Final = 0.006
"""Half a percent, and a little: by how much of the time smooth samples may be wrong throughout."""
SMOOTH_NS: Final = 2_000_000_000
"""For as long the rounding of smooth samples is summed up."""
SCATTER: Final = 0.0058
"""Two standard deviations of one rounded sample, as a part of its time."""
DRIFT: Final = 0.001
LEAST_NS: Final = 2_000_000
"""Allowances that threads have paid for and not used, and clocks that were not read together."""

LEARNING_NS: Final = 50_000_000
"""GPU time, at a promise of all of it, for which a scale of 1 is believed without evidence."""
SETTLING_NS: Final = 1_000_000_000
"""From its first launches nothing is learnt: costs that nobody knew say nothing of later ones."""
SHORTEST_NS: Final = 250_000_000
SCALE_LEAST: Final = 1 / 16
SCALE_MOST: Final = 4.0


def read(account: Account, reading: Reading) -> Account:
    """Take note of the meter; in the order of time."""
    charged = reading.charged - account.corrected
    retired = min(charged, reading.retired - account.corrected + account.lost)
    plain = replace(reading, charged=charged, retired=retired)
    if not account.readings and charged <= NEW_NS:
        contact = Contact(reading.at, 0, 0)
        account = replace(account, measured=0, began=reading.at, contact=contact)
    oldest, recent = reading.at - MEMORY_NS - IDLE_NS, account.readings
    while recent and recent[0].at < oldest:
        recent = recent[1:]
    old = account
    return Account(  # ten times a second for each container, and replace() takes its time
        readings=(*recent, plain),
        measured=old.measured,
        corrected=old.corrected,
        lost=old.lost,
        scale=old.scale,
        began=old.began,
        contact=old.contact,
        variation=old.variation,
        lesson=old.lesson,
        advanced=old.advanced,
        advanced_from=old.advanced_from,
    )


def rest(account: Account) -> Account:
    """Of a meter that stands still: between two readings that say the same nothing has happened, so
    that those in between are not needed."""
    told = account.readings
    said = [(one.charged, one.retired, one.launches, one.unpaid) for one in told]
    inside = range(1, len(told) - 1)
    idle = {at for at in inside if said[at - 1] == said[at] == said[at + 1]}
    kept = tuple(one for at, one in enumerate(told) if at not in idle)
    return replace(account, readings=kept)


def follow(account: Account, sample: Sample, promise: float) -> tuple[Account, int]:
    """Take a sample in. Returns the GPU time to be charged in addition, or below 0 given back.

    promise: the part of the GPU it was promised, 0 to 1. Samples come without gaps; after a gap the
    account is to be interrupted.
    """
    if account.measured is None or account.contact is None:
        account = _begin_unused(account, sample)
    if account.measured is None:
        return _begin(account, sample), 0
    if _idle(account, sample):
        last = account.readings[-1]
        lost = account.lost + last.charged - last.retired
        return _begin(replace(account, lost=lost), sample), 0
    measured = account.measured + sample.busy
    account = replace(account, measured=measured)
    if sample.whole and sample.since >= account.began + SETTLING_NS:
        account = replace(account, variation=account.variation.add(sample))
    elif measured == 0:  # it has not begun
        account = replace(account, began=sample.until)
    wrong, bound = _outside(account, sample)
    if wrong < 0 and not sample.whole:  # what nobody is seen to have taken, others of it took
        return replace(account, measured=measured - wrong), 0
    if wrong == 0:
        return _rest(account, sample), 0
    advanced = max(0, account.advanced + min(wrong, 0))
    corrected = replace(account, corrected=account.corrected + wrong, advanced=advanced)
    before, _ = _around(account, sample.until)
    if wrong > 0 and before.unpaid:
        return _advance(corrected, before, wrong), wrong
    return _learn(corrected, sample.until, bound, promise), wrong


def interrupt(account: Account) -> Account:
    """Samples are missing, and nobody can say what it used meanwhile: they begin anew with the next
    one. The meter goes on, and so do what it has shown and what charges are multiplied by."""
    return replace(
        account,
        measured=None,
        contact=None,
        variation=Variation(),
        lesson=Lesson(),
    )


def settle(account: Account) -> tuple[Account, int]:
    """Returns what is to be charged in addition, 0 or less: what was charged in advance for what
    has ended and been paid for. No sample needs to come: who owes twice launches nothing, and
    drivers do not sample who does nothing.
    """
    last = account.readings[-1]
    if account.advanced == 0 or last.unpaid:
        return account, 0
    back = min(account.advanced, max(0, last.charged - account.advanced_from))
    return replace(account, advanced=0, corrected=account.corrected - back), -back


def _advance(account: Account, before: Reading, amount: int) -> Account:
    """While a launch of unknown cost is under way, what is measured is charged in advance."""
    since = account.advanced_from if account.advanced else before.charged
    return replace(account, advanced=account.advanced + amount, advanced_from=since)


def amend(account: Account, since: int, amount: int) -> Account:
    """For work that ended then, so much more was, or is going to be, charged. Readings since then
    are to say so: what is measured must not be held against a charge that was put right."""
    readings = tuple(
        replace(one, charged=one.charged + amount, retired=one.retired + amount)
        if one.at >= since
        else one
        for one in account.readings
    )
    return replace(account, readings=readings)


def _begin(account: Account, sample: Sample) -> Account:
    """From here on. What is in flight may have been measured or not: half of it counts as such."""
    if not account.readings:
        return account
    return _touch(replace(account, began=sample.until, variation=Variation()), sample)


def _begin_unused(account: Account, sample: Sample) -> Account:
    """From the sample's start on, if nothing had ever been charged by then: no guess is needed, and
    a first launch, which costs next to nothing until it has ended, is not a surprise when it has.
    """
    if not account.readings or account.readings[0].charged > 0:
        return account
    contact = Contact(sample.since, account.corrected, 0)
    return replace(account, measured=contact.measured, contact=contact, began=sample.since)


def _rest(account: Account, sample: Sample) -> Account:
    """Nothing contradicts the charges. If a scale of 1 would not have been contradicted either, it
    is taken. And what rounding smooth samples sums up to is forgotten: it is not evidence."""
    contact, measured = account.contact, account.measured
    if contact is None or measured is None or sample.until - contact.at < SMOOTH_NS:
        return account
    if sample.since < account.began + SETTLING_NS:  # it grew unevenly between the last readings
        return account
    most, least = _bounds(account, sample)
    plain = ((most + least) // 2 - contact.charged) / account.scale
    doubt = _tolerance(account, sample) + (most - least) // 2
    if abs(measured - contact.measured - plain) <= doubt:
        account = replace(account, scale=1.0, lesson=Lesson())
    one = _tolerance(account, sample) < most - least <= 2 * _launch(account)
    if one or account.variation.deviation >= SMOOTH:
        return account  # in the middle of one long launch, what was measured says more
    return _touch(account, sample)


def _touch(account: Account, sample: Sample) -> Account:
    """Both agree at the end of the sample, as far as anybody can tell."""
    most, least = _bounds(account, sample)
    middle = (most + least) // 2
    contact = Contact(sample.until, middle + account.corrected, middle, (most - least) // 2)
    return replace(account, measured=contact.measured, contact=contact)


def _idle(account: Account, sample: Sample) -> bool:
    """Nothing measured, nothing charged for long, and yet something seems to be in flight."""
    first, last = account.readings[0], account.readings[-1]
    return (
        sample.busy == 0
        and last.at - first.at >= IDLE_NS
        and first.charged == last.charged
        and last.charged != last.retired
    )


def _outside(account: Account, sample: Sample) -> tuple[int, int]:
    """By how much the measured is outside of its bounds (above 0: too little was charged), and the
    bound, as the meter would say it without corrections."""
    measured, (most, least) = account.measured or 0, _bounds(account, sample)
    tolerance = _tolerance(account, sample)
    above = measured - (most + account.corrected) - tolerance
    if above > 0:
        return above, most
    below = measured - (least + account.corrected) + tolerance
    return (below, least) if below < 0 else (0, 0)


def _bounds(account: Account, sample: Sample) -> tuple[int, int]:
    """What was charged when the sample ended, all of it and for work that had ended by then; a
    little more and a little less. Between two readings both are taken to grow evenly but for one
    launch: throttled launches go one by one."""
    before, after = _around(account, sample.until)
    part = (sample.until - before.at) / max(1, after.at - before.at)
    launch = _launch(account)
    most = before.charged + round(part * (after.charged - before.charged)) + launch
    least = before.retired + round(part * (after.retired - before.retired)) - launch
    return min(after.charged, most), max(before.retired, least)


def _launch(account: Account) -> int:
    """What a launch was charged lately, at most: the dearest on average between two readings."""
    return max(
        (
            (after.charged - before.charged) // max(1, after.launches - before.launches)
            for before, after in pairwise(account.readings)
        ),
        default=0,
    )


def _around(account: Account, moment: int) -> tuple[Reading, Reading]:
    """The last reading up to a moment, and the first from it on; at the ends twice the same."""
    before = [one for one in account.readings if one.at <= moment]
    after = [one for one in account.readings if one.at >= moment]
    return (before or after)[-1 if before else 0], (after or before)[0 if after else -1]


def _tolerance(account: Account, sample: Sample) -> int:
    """What rounding to whole percents may have added up to since the last contact."""
    contact = account.contact or Contact(sample.until, 0, 0)
    span, one = sample.until - contact.at, sample.until - sample.since
    if account.variation.deviation < SMOOTH:
        return contact.slack + LEAST_NS + round(ROUNDING * sample.parts * span)
    scatter = SCATTER * one * math.sqrt(sample.parts * span / one)
    return contact.slack + LEAST_NS + round(scatter + DRIFT * span)


def _learn(account: Account, now: int, bound: int, promise: float) -> Account:
    """Of what was measured and charged between contacts, the ratio scales what follows."""
    contact, measured = account.contact, account.measured
    if contact is None or measured is None:
        return account
    work, charged = measured - contact.measured, bound - contact.charged
    if now - contact.at < SHORTEST_NS or charged <= 0:
        return account
    if now < account.began + SETTLING_NS:
        return replace(account, contact=Contact(now, measured, bound))
    keep = math.exp((contact.at - now) / FORGETTING_NS)
    lesson = Lesson(
        account.lesson.work * keep + work, account.lesson.plain * keep + charged / account.scale
    )
    doubt = LEARNING_NS * promise
    scale = (lesson.work + doubt) / (lesson.plain + doubt)
    scale = min(max(scale, SCALE_LEAST), SCALE_MOST)
    return replace(account, scale=scale, lesson=lesson, contact=Contact(now, measured, bound))
