"""How a local epsilon becomes whole numbers, with which uniform 64-bit words are compared."""
import math
from fractions import Fraction

WORDS = 1 << 64  # values of a word

def exp_lower(epsilon: float) -> Fraction:
    """A rational just below e**epsilon, however a good `exp` rounds."""
    return Fraction(math.exp(epsilon)) * (1 - Fraction(1, 1 << 51))

def two_level_threshold(v: int, s: int, epsilon: float) -> int:
    """Words for which the report is one of the s favoured of v symbols."""
    r = exp_lower(epsilon)
    most = math.floor(s * (WORDS * (r - 1) - v * (r + 1)) / (v + s * (r - 1)))
    return most - most % (v if v & (v - 1) == 0 == s & (s - 1) else s * math.gcd(v, WORDS))

def coin_threshold(ones: int, zeros: int, epsilon: float) -> int:
    """Words for heads, where heads are e**epsilon times ones : zeros as likely as tails."""
    odds = ones * exp_lower(min(epsilon, 60.0))
    return math.floor(WORDS * odds / (odds + zeros))

def unary_thresholds(epsilon: float, optimized: bool) -> tuple[int, int]:
    """Words for which a bit is one: of the value held, and of any other."""
    if optimized:
        return WORDS // 2, math.ceil(WORDS / (1 + exp_lower(min(epsilon, 60.0))))
    own = coin_threshold(1, 1, min(epsilon, 60.0) / 2)
    return own, WORDS - own

def permanent_thresholds(epsilon: float, forever: float) -> tuple[int, int, int]:
    """RAPPOR: words that flip a permanent bit, and that show a permanent 0, and 1, as one."""
    flip = min(math.ceil(WORDS / (1 + exp_lower(min(forever / 2, 60.0)))), WORDS // 2 - 1)
    f = Fraction(flip, WORDS)
    odds = exp_lower(min(epsilon, 60.0)) * (1 - Fraction(1, 2**36))
    one, zero, keep = Fraction(1, 2), 1 / (1 + odds), (1 - f) / f  # optimized unary encoding
    if one > keep * zero:  # the permanent noise leaves no room for that: no false ones at all
        zero = (odds - keep) / (keep * (odds - 1))
        one = keep * zero
    low = max(((1 - f) * zero - f * one) / (1 - 2 * f), Fraction(0))
    high = min(((1 - f) * one - f * zero) / (1 - 2 * f), Fraction(1))
    return flip, math.ceil(low * WORDS), min(math.floor(high * WORDS), WORDS - 1)
