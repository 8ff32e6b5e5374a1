"""Second looks at what a pattern found: check digits, lengths, and words that only stand for a secret."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter

_CARD = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"
    r"|(?:5[1-5]|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12,14}"
    r"|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|35(?:2[89]|[3-8][0-9])[0-9]{12}"
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}(?:[0-9]{3})?|62[0-9]{14,17}",
    re.ASCII,
)
"""The numbers of the card networks by prefix and length; the prefixes of 2 and 5 have 16 digits, see `is_card`."""
_DOUBLED = dict(zip("0123456789", (0, 2, 4, 6, 8, 1, 3, 5, 7, 9), strict=True))

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
    return (sum(map(int, digits[::-2])) + sum(map(_DOUBLED.__getitem__, digits[-2::-2]))) % 10 == 0


def is_card(text: str) -> bool:
    """A payment card's number: a network's prefix and length, the Luhn digit, and not one digit all through."""
    digits = text.replace(" ", "").replace("-", "")
    if not _CARD.fullmatch(digits) or (digits[0] in "25" and len(digits) != 16):
        return False
    return luhn(digits) and len(set(digits)) > 1


def iban_pattern() -> str:
    """The regular expression of an account number of exactly its country's length, written solid or in fours."""
    countries: dict[str, list[str]] = {}
    for letter, code, length in re.findall(r"([A-Z])([A-Z])([0-9]{2})", _IBAN_COUNTRIES):
        behind = int(length) - 4
        fours, rest = divmod(behind, 4)
        last = f" [A-Z0-9]{{{rest}}}" if rest else ""
        shapes = f"{code}[0-9]{{2}}(?:[A-Z0-9]{{{behind}}}|(?: [A-Z0-9]{{4}}){{{fours}}}{last})"
        countries.setdefault(letter, []).append(shapes)
    return "|".join(f"{letter}(?:{'|'.join(shapes)})" for letter, shapes in countries.items())


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
