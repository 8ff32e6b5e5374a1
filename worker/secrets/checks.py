"""Second looks at what a pattern found: check digits, lengths, and words that only stand for a secret."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter

_CARD_LENGTHS: tuple[tuple[int, int, int, frozenset[int]], ...] = (
    (34, 34, 2, frozenset({15})),
    (37, 37, 2, frozenset({15})),
    (300, 305, 3, frozenset({14})),
    (36, 36, 2, frozenset({14})),
    (38, 39, 2, frozenset({14})),
    (3528, 3589, 4, frozenset({16})),
    (4, 4, 1, frozenset({13, 16, 19})),
    (51, 55, 2, frozenset({16})),
    (2221, 2720, 4, frozenset({16})),
    (6011, 6011, 4, frozenset({16, 19})),
    (644, 659, 3, frozenset({16, 19})),
    (62, 62, 2, frozenset({16, 17, 18, 19})),
)
"""(first prefix, last prefix, digits of the prefix, lengths) of the card networks."""

_IBAN_COUNTRIES = (
    "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18FR27"
    "GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22"
    "MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28"
    "TL23TN24TR26UA29VA22VG24XK20YE30"
)
"""Country code and length of the whole number, from the registry of account numbers."""

_PLACEHOLDER = re.compile(
    r"(?i)(?:x{3,}|\*+|\.{3,}|-+|_+|(?:your|my|some|the|a)?[-_]?"
    r"(?:pass(?:word|wd|phrase)?|pwd|pw|secret|token|key|cred(?:ential)?s?|test(?:ing)?|example|sample|dummy|fake|"
    r"change[-_]?me|redacted|placeholder|user(?:name)?|value|none|null|undefined|foo|bar|foobar|hunter2|letmein)"
    r"[-_]?\d{0,4})"
)


def luhn(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others."""
    total = 0
    for place, character in enumerate(reversed(digits)):
        value = ord(character) - 48
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def is_card(text: str) -> bool:
    """A payment card's number: a network's prefix and length, the Luhn digit, and more than two different digits."""
    digits = text.replace(" ", "").replace("-", "")
    if len(set(digits)) < 3:
        return False
    known = any(
        len(digits) in lengths and first <= int(digits[:places]) <= last
        for first, last, places, lengths in _CARD_LENGTHS
    )
    return known and luhn(digits)


def iban_pattern() -> str:
    """The regular expression of an account number of exactly its country's length, written solid or in fours."""
    countries: dict[int, list[str]] = {}
    for code, length in re.findall(r"([A-Z]{2})([0-9]{2})", _IBAN_COUNTRIES):
        countries.setdefault(int(length) - 4, []).append(code)
    shapes = []
    for length, codes in countries.items():
        fours, rest = divmod(length, 4)
        last = f" [A-Z0-9]{{{rest}}}" if rest else ""
        shapes.append(f"(?:{'|'.join(codes)})[0-9]{{2}}(?:[A-Z0-9]{{{length}}}|(?: [A-Z0-9]{{4}}){{{fours}}}{last})")
    return "|".join(shapes)


def has_iban_remainder(text: str) -> bool:
    """The check of an international bank account number: the remainder is 1 modulo 97."""
    account = text.replace(" ", "")
    turned = account[4:] + account[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def is_no_placeholder(text: str) -> bool:
    """Not a word, a variable or a mask that stands where a secret would."""
    return not (_PLACEHOLDER.fullmatch(text) or text.startswith(("$", "%(", "%s", "{", "<")))


def is_mixed(text: str) -> bool:
    """Letters and digits, as random tokens have and words have not."""
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def is_basic_credential(text: str) -> bool:
    """Base64 of `user:password`, as in HTTP Basic and in Docker's configuration."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in plain[1:-1] and plain.isascii() and plain.decode("ascii").isprintable()


def entropy(text: str) -> float:
    """Shannon entropy in bits a character."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())


def is_random(text: str) -> bool:
    """Letters, digits and at least 3.5 bits a character: for rules that have nothing else to go by."""
    return is_mixed(text) and is_no_placeholder(text) and entropy(text) >= 3.5
