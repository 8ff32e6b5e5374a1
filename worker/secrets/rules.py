"""The rules: what a credential, a card or an account number looks like.

A rule costs nothing until one of its needles is in the text; then its pattern is tried at each needle. Every
repetition in a pattern has a bound, or is possessive and the pattern's last word, so that the work for a text is its
length times a constant whatever the text is (a test reads the patterns and checks this).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from contracts.levels import Level
from worker.secrets.checks import (
    has_iban_remainder,
    iban_pattern,
    is_basic_credential,
    is_card,
    is_mixed,
    is_no_placeholder,
    is_random,
)

Where = Literal["run", "text", "digits"]
"""Where the needles are looked for: in and just before runs of 20 and more characters of tokens, in the whole text,
or, as shapes, in the text with each digit made 0, each capital A, and each blank or hyphen a blank."""


class Rule(Struct, frozen=True, kw_only=True):
    """`pattern` is matched `back` characters before each needle or shape; its group 1 is what gets replaced, if it has
    one and the rule is not `whole`.

    `level` is the least level of a text in which the rule hits. `tail` continues a match that has no upper bound.
    """

    name: str
    pattern: re.Pattern[str]
    needles: tuple[str, ...] = ()
    level: Level = Level.CONFIDENTIAL
    shapes: tuple[str, ...] = ()
    where: Where = "run"
    whole: bool = False
    back: int = 0
    check: Callable[[str], bool] | None = None
    tail: re.Pattern[str] | None = None
    by_default: bool = True


_B = r"(?<![A-Za-z0-9_])"
_E = r"(?![A-Za-z0-9_])"


def _rule(name: str, needles: str, pattern: str, **more: object) -> Rule:
    return Rule(name=name, needles=tuple(needles.split()), pattern=re.compile(pattern, re.ASCII), **more)  # type: ignore[arg-type]


_SPECIFIC = (
    _rule("aws-access-key-id", "AKIA ASIA ABIA ACCA", rf"{_B}A[KSBC][IC]A[A-Z2-7]{{16}}(?![A-Za-z0-9_+/=])"),
    _rule(
        "aws-secret-access-key",
        "ecret_access_key ECRET_ACCESS_KEY ecretAccessKey ecret-access-key",
        r"(?i:ecret[_-]?access[_-]?key)[\"']?[ \t]{0,8}[:=]?[ \t]{0,8}[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        level=Level.RESTRICTED,
        check=is_mixed,
    ),
    _rule("gcp-api-key", "AIza", rf"{_B}AIza[A-Za-z0-9_-]{{35}}(?![A-Za-z0-9_-])"),
    _rule("google-oauth-secret", "GOCSPX-", rf"{_B}GOCSPX-[A-Za-z0-9_-]{{28,40}}"),
    _rule("google-oauth-token", "ya29.", rf"{_B}ya29\.[A-Za-z0-9_-]{{20,1024}}+(?:\.[A-Za-z0-9_-]{{1,1024}}+)?"),
    _rule(
        "azure-storage-key",
        "ccountKey= SharedAccessKey=",
        r"(?:ccountKey|SharedAccessKey)=([A-Za-z0-9+/]{43,86}={1,2})",
        level=Level.RESTRICTED,
    ),
    _rule(
        "azure-client-secret",
        "Q~",
        r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])",
        back=4,
        where="text",
    ),
    _rule("azure-sas-signature", "sig=", r"(?<=[?&;])sig=([A-Za-z0-9%]{43,80}%3[Dd])"),
    _rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_B}gh[pousr]_[A-Za-z0-9]{{36,255}}"),
    _rule("github-fine-grained-token", "github_pat_", rf"{_B}github_pat_[A-Za-z0-9]{{22}}_[A-Za-z0-9]{{59}}"),
    _rule(
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glagent- glcbt- glsoat- glimt- glft-",
        rf"{_B}gl(?:pat|dt|rt|ptt|agent|cbt|soat|imt|ft)-[A-Za-z0-9_-]{{20,255}}(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{7,9}})?",
    ),
    _rule(
        "slack-token", "xoxb- xoxp- xoxa- xoxe- xoxo- xoxr- xoxs- xoxc- xoxd-", rf"{_B}xox[a-z]-[A-Za-z0-9%-]{{16,512}}"
    ),
    _rule("slack-app-token", "xapp-", rf"{_B}xapp-[0-9]-[A-Z0-9]{{8,16}}-[0-9]{{8,16}}-[A-Za-z0-9]{{32,128}}"),
    _rule(
        "webhook-url",
        "hooks.slack. api/webhooks/",
        r"(?:hooks\.slack\.com/(?:services|workflows)|api/webhooks)/([A-Za-z0-9_-]{8,24}/[A-Za-z0-9_/-]{24,128})",
    ),
    _rule("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", rf"{_B}[sr]k_(?:live|test)_[A-Za-z0-9]{{16,247}}"),
    _rule("stripe-webhook-secret", "whsec_", rf"{_B}whsec_[A-Za-z0-9+/=]{{24,80}}"),
    _rule("openai-key", "sk-proj- sk-svcacct- sk-admin-", rf"{_B}sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{{32,255}}"),
    _rule("openai-key", "T3BlbkFJ", rf"{_B}sk-[A-Za-z0-9]{{20}}T3BlbkFJ[A-Za-z0-9]{{20}}", back=23),
    _rule("anthropic-key", "sk-ant-", rf"{_B}sk-ant-[a-z]{{2,8}}[0-9]{{2}}-[A-Za-z0-9_-]{{32,255}}"),
    _rule("huggingface-token", "hf_", rf"{_B}hf_[A-Za-z0-9]{{34,40}}{_E}"),
    _rule("npm-token", "npm_", rf"{_B}npm_[A-Za-z0-9]{{36}}{_E}"),
    _rule("npm-token", "_authToken", r"_authToken[ \t]{0,4}=[ \t]{0,4}[\"']?([A-Za-z0-9_+/=-]{20,255})"),
    _rule("pypi-token", "pypi-AgE", rf"{_B}pypi-AgE[A-Za-z0-9_-]{{50,1024}}"),
    _rule("docker-token", "dckr_pat_ dckr_oat_", rf"{_B}dckr_[po]at_[A-Za-z0-9_-]{{27,64}}"),
    _rule(
        "docker-auth",
        '"auth"',
        r"\"auth\"[ \t]{0,4}:[ \t]{0,4}\"([A-Za-z0-9+/]{20,512}={0,2})\"",
        check=is_basic_credential,
    ),
    _rule("twilio-key", "SK", rf"{_B}SK[0-9a-f]{{32}}{_E}", check=is_mixed),
    _rule("sendgrid-key", "SG.", rf"{_B}SG\.[A-Za-z0-9_-]{{16,32}}\.[A-Za-z0-9_-]{{39,50}}"),
    _rule("mailgun-key", "key-", r"(?<![A-Za-z0-9_-])key-[0-9a-f]{32}(?![A-Za-z0-9_-])"),
    _rule("vault-token", "hvs. hvb. hvr.", rf"{_B}hv[sbr]\.[A-Za-z0-9_-]{{24,255}}"),
    _rule("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rf"{_B}do[opr]_v1_[0-9a-f]{{64}}"),
    _rule("shopify-token", "shpat_ shpca_ shppa_ shpss_", rf"{_B}shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_E}"),
    _rule("databricks-token", "dapi", rf"{_B}dapi[0-9a-f]{{32}}(?:-[0-9])?{_E}"),
    _rule("telegram-bot-token", ":AA", r"(?<=[0-9]{8}):(AA[A-Za-z0-9_-]{33})(?![A-Za-z0-9_-])"),
    _rule("age-secret-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}", level=Level.RESTRICTED),
    _rule(
        "jwt",
        "eyJ",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{12,1024}+\.eyJ[A-Za-z0-9_-]{8,8192}+\.[A-Za-z0-9_-]*+",
        tail=re.compile(r"[A-Za-z0-9_-]*+", re.ASCII),
    ),
    _rule(
        "authorization-header",
        "uthorization UTHORIZATION",
        r"(?i:uthorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?:bearer|basic|token|apikey)[ \t]{1,4})"
        r"([A-Za-z0-9._~+/=-]{20,4096}+)",
        check=is_mixed,
    ),
)

_IN_TEXT = (
    _rule(
        "url-credentials",
        "://",
        r"://[^\s/?#:@\"'`<>()\[\]{}|\\^$*,;]{0,128}:([^\s/?#:@\"'`<>()\[\]{}|\\^*,]{3,256})@(?=[A-Za-z0-9\[])",
        where="text",
        check=is_no_placeholder,
    ),
)

_NUMBERS = (
    _rule(
        "payment-card",
        "",
        r"(?<![\w.+/=-])(?<![0-9]{4}[ -])(?:[2-6][0-9]{12,18}"
        r"|[2-6][0-9]{3}([ -])(?:[0-9]{4}\1){2}[0-9]{4}(?:\1[0-9]{3})?|3[47][0-9]{2}([ -])[0-9]{6}\2[0-9]{5})"
        r"(?![\w=+-]|\.[0-9]| [0-9]{4}(?![0-9/]))",
        shapes=("0000000000000", "0000 0000 0000 0000", "0000 000000 00000"),
        whole=True,
        where="digits",
        check=is_card,
    ),
    _rule(
        "iban",
        "",
        rf"{_B}(?:{iban_pattern()}){_E}",
        shapes=("AA00",),
        where="digits",
        check=has_iban_remainder,
    ),
)

_WORDS = "password passwd secret token api_key apikey api-key access_key private_key client_secret auth_key"
_ON_REQUEST = (
    _rule(
        "generic-assignment",
        f"{_WORDS} {_WORDS.upper()} {_WORDS.title()}",
        rf"(?i:{'|'.join(_WORDS.split())})[\"']?[ \t]{{0,8}}(?:=|:=|:|=>)[ \t]{{0,8}}"
        r"[\"']([^\s\"'`<>\[\]{}$]{12,128})[\"']",
        where="text",
        check=is_random,
        by_default=False,
    ),
)

RULES: tuple[Rule, ...] = _SPECIFIC + _IN_TEXT + _NUMBERS + _ON_REQUEST
"""All rules, also those that are off unless asked for. Private keys and known values have searches of their own."""
