"""Secrets are found by rule and by value, whole and in pieces, and ordinary text is left alone."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.levels import Level
from contracts.replies import Error
from contracts.tools import Match, RunCommandOutput, SearchFilesOutput
from worker.secrets import RULES, Redacted, Redactor, StreamRedactor, redact_output
from worker.secrets import stream as stream_module
from worker.secrets.checks import is_card, luhn

_SOURCE = random.Random(20240217)
_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_HEX = "0123456789abcdef"


def _some(count: int, alphabet: str = _ALNUM) -> str:
    """Random characters, with a letter and a digit among the first two so that every check for both is met."""
    return "a7" + "".join(_SOURCE.choice(alphabet) for _ in range(count - 2))


def _jwt() -> str:
    parts = [
        json.dumps({"alg": "HS256", "typ": "JWT"}),
        json.dumps({"sub": "1234567890", "iat": 1516239022}),
        _some(30),
    ]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def _pem(lines: int = 24, kind: str = "RSA ") -> str:
    body = "\n".join(_some(64, _ALNUM + "+/") for _ in range(lines))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n{_some(20)}==\n-----END {kind}PRIVATE KEY-----"


# Put together here, so that no scanner takes this file for one with secrets in it.
SECRETS: list[tuple[str, str, str]] = [
    ("aws-access-key-id", "id=", "AK" + "IA" + "Q2W3E4R5T6Y7U2I3"),
    ("aws-secret-access-key", "aws_secret_access_key = ", _some(40, _ALNUM + "/+")),
    ("aws-secret-access-key", 'AWS_SECRET_ACCESS_KEY="', _some(40)),
    ("aws-secret-access-key", '"SecretAccessKey": "', _some(40)),
    ("gcp-api-key", "key: ", "AI" + "za" + _some(35)),
    ("google-oauth-secret", "", "GOCS" + "PX-" + _some(28)),
    ("google-oauth-token", "token ", "ya" + "29." + _some(60)),
    ("azure-storage-key", "AccountName=x;AccountKey=", _some(86) + "=="),
    ("azure-client-secret", "secret ", "abc8" + "Q~" + _some(34)),
    ("azure-sas-signature", "https://x.invalid/c?sv=1&sig=", _some(43) + "%3D"),
    ("github-token", "", "gh" + "p_" + _some(36)),
    ("github-token", "x-access-token ", "gh" + "s_" + _some(36)),
    ("github-fine-grained-token", "", "github" + "_pat_" + _some(22) + "_" + _some(59)),
    ("gitlab-token", "PRIVATE-TOKEN: ", "gl" + "pat-" + _some(20)),
    ("slack-token", "", "xo" + "xb-123456789012-123456789012-" + _some(24)),
    ("slack-app-token", "", "xa" + "pp-1-A0123456789-1234567890123-" + _some(64, _HEX)),
    ("webhook-url", "https://hooks.slack.com/services/", "T01234567/B01234567/" + _some(24)),
    ("webhook-url", "https://discord.invalid/api/webhooks/", "123456789012345678/" + _some(68)),
    ("stripe-key", "", "sk" + "_live_" + _some(24)),
    ("stripe-webhook-secret", "", "wh" + "sec_" + _some(32)),
    ("openai-key", "", "sk" + "-proj-" + _some(48)),
    ("openai-key", "", "sk" + "-" + _some(20) + "T3Blbk" + "FJ" + _some(20)),
    ("anthropic-key", "", "sk" + "-ant-api03-" + _some(93)),
    ("huggingface-token", "", "h" + "f_" + _some(34)),
    ("npm-token", "", "np" + "m_" + _some(36)),
    ("npm-token", "//registry.invalid/:_authToken=", "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"),
    ("pypi-token", "", "py" + "pi-AgEIcHlwaS5vcmc" + _some(60)),
    ("docker-token", "", "dckr" + "_pat_" + _some(27)),
    ("docker-auth", '{"auths":{"r":{"auth": "', base64.b64encode(b"somebody:s3cretpassw0rd").decode()),
    ("twilio-key", "", "S" + "K" + _some(32, _HEX)),
    ("sendgrid-key", "", "S" + "G." + _some(22) + "." + _some(43)),
    ("mailgun-key", "", "key" + "-" + _some(32, _HEX)),
    ("vault-token", "", "hv" + "s." + _some(90)),
    ("digitalocean-token", "", "dop" + "_v1_" + _some(64, _HEX)),
    ("shopify-token", "", "shp" + "at_" + _some(32, _HEX)),
    ("databricks-token", "", "da" + "pi" + _some(32, _HEX)),
    ("telegram-bot-token", "123456789:", "A" + "A" + _some(33)),
    ("age-secret-key", "", "AGE-SECRET" + "-KEY-1" + _some(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L").upper()),
    ("jwt", "cookie=", _jwt()),
    ("authorization-header", "Authorization: Bearer ", _some(40)),
    ("authorization-header", '"authorization": "Basic ', base64.b64encode(b"somebody:s3cretpassw0rd").decode()),
    ("url-credentials", "postgres://app:", "s3cr3t-w0rd"),
    ("private-key", "", _pem()),
    ("private-key", "", _pem(12, "")),
    ("private-key", "", _pem(6, "OPENSSH ")),
    ("payment-card", "card ", "4111 1111 1111 1111"),
    ("payment-card", "card ", "5555555555554444"),
    ("payment-card", "card ", "3782-822463-10005"),
    ("iban", "to ", "DE89 3704 0044 0532 0130 00"),
    ("iban", "to ", "GB82WEST12345698765432"),
]
_AFTER = {"url-credentials": "@db.invalid:5432/app", "docker-auth": '"}}}'}


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.mark.parametrize("rule, before, secret", SECRETS, ids=[f"{n}-{case[0]}" for n, case in enumerate(SECRETS)])
def test_replaces_the_secret_and_nothing_else(redactor: Redactor, rule: str, before: str, secret: str) -> None:
    after = _AFTER.get(rule, '" end\n')
    redacted = redactor.redact(f"first\n{before}{secret}{after}")
    level = (
        Level.RESTRICTED
        if rule in ("private-key", "aws-secret-access-key", "azure-storage-key", "age-secret-key")
        else Level.CONFIDENTIAL
    )
    assert redacted == Redacted(f"first\n{before}[redacted:{rule}]{after}", level, (rule,))


def test_every_rule_that_is_on_is_tried_above() -> None:
    tried = {rule for rule, _, _ in SECRETS} - {"private-key"}
    assert tried == {rule.name for rule in RULES if rule.by_default}


@pytest.mark.parametrize(
    "text",
    [
        "AKIA is a prefix, and so is ghp_, and sk-ant-",
        "AKIAIOSFODNN7EXAMPLE1234567890LONGER",
        "a sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "https://user:password@host/ and https://user:${TOKEN}@host/ and redis://:<secret>@host",
        "https://example.invalid:8080/path@2x.png and git@host:owner/name.git",
        'if text.startswith("-----BEGIN PRIVATE KEY-----") and text.endswith("-----END PRIVATE KEY-----"):',
        "Authorization: Bearer YOUR_ACCESS_TOKEN_GOES_HERE",
        "4111 1111 1111 1112",
        "1700000000000000000",
        "4111111111111111.5 and 0x4111111111111111 and x4111111111111111",
        "0000 0000 0000 0000",
        "DE89 3704 0044 0532 0130 01",
        "RFC2822 AND ISO8601 AND GB82TEST",
        "-----BEGIN CERTIFICATE-----\n" + "A" * 64 + "\n-----END CERTIFICATE-----",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "api_key = 'x1y2z3a4b5c6d7e8f9'",
    ],
)
def test_leaves_alone_what_only_looks_like_a_secret(redactor: Redactor, text: str) -> None:
    assert redactor.redact(text) == Redacted(text)


def test_a_rule_on_request_and_a_rule_left_out() -> None:
    redactor = Redactor(on_request=["generic-assignment"], off=["github-token"])
    token = "gh" + "p_" + _some(36)
    redacted = redactor.redact(f"db_password = 'x1Y2z3a4B5c6d7e8' {token}")
    assert redacted.text == f"db_password = '[redacted:generic-assignment]' {token}"


@pytest.mark.parametrize("options", [{"off": ["nonsense"]}, {"on_request": ["nonsense"]}])
def test_refuses_a_rule_that_is_none(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no such rule: nonsense"):
        Redactor(**options)


KEY_FORMS: dict[str, Callable[[str], str]] = {
    "indented": lambda pem: "  key: |\n    " + pem.replace("\n", "\n    ") + "\nnext: 1",
    "escaped": lambda pem: json.dumps({"private_key": pem + "\n", "id": 1}),
    "escaped twice": lambda pem: json.dumps({"a": json.dumps({"private_key": pem})}),
    "quoted lines": lambda pem: "".join(f'"{line}\\n" +\n' for line in pem.split("\n")),
    "numbered": lambda pem: "".join(f"{n}:{line}\n" for n, line in enumerate(pem.split("\n"), 1)),
    "added in a diff": lambda pem: "+" + pem.replace("\n", "\n+") + "\n",
    "removed in a diff": lambda pem: "-" + pem.replace("\n", "\n-") + "\n",
    "windows": lambda pem: pem.replace("\n", "\r\n"),
    "only its head": lambda pem: "\n".join(pem.split("\n")[:5]) + "\n$ ",
    "encrypted": lambda pem: pem.replace(
        "-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0123ABCD\n\n", 1
    ),
}


@pytest.mark.parametrize("form", KEY_FORMS)
def test_private_keys_in_every_dress(redactor: Redactor, form: str) -> None:
    pem = _pem()
    redacted = redactor.redact("before " + KEY_FORMS[form](pem) + " after")
    assert redacted.rules_hit == ("private-key",)
    assert redacted.text.startswith("before ")
    assert redacted.text.endswith(" after")
    assert [line for line in pem.split("\n")[1:-1] if line in redacted.text] == []


VALUE = 'correct"horse&battery/staple+7'


def _in_base64(offset: int) -> str:
    return base64.b64encode(b"abc"[:offset] + VALUE.encode() + b"!?").decode()


FORMS = {
    "raw": VALUE,
    "glued": f"xx{VALUE}yy",
    "json": json.dumps({"pw": VALUE}),
    "base64 0": _in_base64(0),
    "base64 1": _in_base64(1),
    "base64 2": _in_base64(2),
    "base64 3": _in_base64(3),
    "urlsafe base64": base64.urlsafe_b64encode(b"\xff\xfe" + VALUE.encode()).decode(),
    "hex": VALUE.encode().hex(),
    "HEX": VALUE.encode().hex().upper(),
    "url": urllib.parse.quote(VALUE),
    "url all": urllib.parse.quote(VALUE, safe=""),
    "form": urllib.parse.quote_plus(VALUE),
    "url lower": re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), urllib.parse.quote(VALUE, safe="")),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_known_value_in_every_form(form: str) -> None:
    redacted = Redactor({"REDIS_PASSWORD": VALUE}).redact(f"a {FORMS[form]} b")
    assert redacted.level is Level.RESTRICTED
    assert redacted.rules_hit == ("REDIS_PASSWORD",)
    assert "[redacted:REDIS_PASSWORD]" in redacted.text
    assert "horse" not in redacted.text
    for encoded in re.findall(r"[A-Za-z0-9+/_-]{2,}", redacted.text.replace("[redacted:REDIS_PASSWORD]", " ")):
        assert len(encoded) < 8


def test_a_command_that_encodes_a_known_value(tmp_path: Any) -> None:
    (tmp_path / "secret").write_text(VALUE)
    encoders = (
        "cat secret",
        "base64 < secret",
        "(printf x; cat secret) | base64",
        "od -An -v -tx1 < secret | tr -d ' \\n'",
    )
    script = "; echo; ".join(encoders)
    out = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Redactor({"PW": VALUE}).redact(out).text.split() == [
        "[redacted:PW]",
        "[redacted:PW]",
        "e[redacted:PW]==",
        "[redacted:PW]",
    ]


def test_the_lines_of_a_known_value_of_several_lines() -> None:
    value = "\n".join(_some(64) for _ in range(5))
    redacted = Redactor({"KEYFILE": value}).redact(f"tail -2:\n{value[65 * 3 :]}\n")
    assert redacted.text == "tail -2:\n[redacted:KEYFILE]\n[redacted:KEYFILE]\n"


@pytest.mark.parametrize(
    "name, value",
    [("SHORT", "12345"), ("a b", "long enough"), ("", "long enough"), ("X", "redacted"), ("LONGNAME", "LONGNAME")],
)
def test_refuses_a_known_value_that_cannot_be_used_and_does_not_tell_it(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="known secret") as refused:
        Redactor({name: value})
    assert name == value or value not in str(refused.value)


def test_an_output_is_redacted_in_every_field(redactor: Redactor) -> None:
    token = "gh" + "p_" + _some(36)
    output = SearchFilesOutput(
        matches=[Match(path=f"a/{token}", line=3, text=f"x {token}", before=["fine", token]), Match(path="b")],
        warnings=[token],
    )
    put = "[redacted:github-token]"
    assert redact_output(output, redactor) == (
        SearchFilesOutput(
            matches=[Match(path=f"a/{put}", line=3, text=f"x {put}", before=["fine", put]), Match(path="b")],
            warnings=[put],
        ),
        Level.CONFIDENTIAL,
        ("github-token",),
    )
    assert redact_output({"k": [token, 1, None], token: True}, redactor)[0] == {"k": [put, 1, None], put: True}
    error = Error(code="internal", message=token, effect="unknown", retryable=False)
    assert redact_output(error, redactor)[0].message == put


def test_a_clean_output_is_given_back_as_it_is(redactor: Redactor) -> None:
    output = RunCommandOutput(stdout="hello\n", stderr="", exit_code=0, limits_hit=[], omitted_bytes={"stdout": 3})
    redacted, level, hits = redact_output(output, redactor)
    assert redacted is output
    assert (level, hits) == (Level.PUBLIC, ())


def test_two_fields_are_never_read_as_one_secret(redactor: Redactor) -> None:
    output = RunCommandOutput(stdout="gh" + "p_" + _some(20), stderr=_some(20), exit_code=0)
    assert redact_output(output, redactor)[0] == output


# What hostile text is made of: whole secrets, their beginnings, needles, boundaries and ordinary words.
_FRAGMENTS = st.sampled_from(
    [before + secret + _AFTER.get(rule, "") for rule, before, secret in SECRETS]
    + [secret[: len(secret) // 2] for _, _, secret in SECRETS]
    + [needle for rule in RULES for needle in rule.needles]
    + [
        "[redacted:",
        "]",
        "\n",
        "\r\n",
        " ",
        "-",
        "_",
        "=",
        ":",
        "é",
        "\ud800",
        "0",
        "1234",
        "AA00",
        VALUE,
        "://",
        "@h",
        "word",
    ]
)
_TEXTS = st.lists(st.one_of(_FRAGMENTS, st.text(max_size=8)), max_size=12).map("".join)
_WITH_VALUE = Redactor({"PW": VALUE, "LINES": "first line of it\nsecond-line-of-it"}, on_request=["generic-assignment"])


@given(_TEXTS)
@settings(max_examples=200, deadline=None)
def test_never_raises_and_a_second_time_changes_nothing(text: str) -> None:
    once = _WITH_VALUE.redact(text)
    assert VALUE not in once.text
    assert _WITH_VALUE.redact(once.text) == Redacted(once.text)
    assert (once.rules_hit == ()) == (once.text == text)


def _stream(redactor: Redactor, text: str, cuts: list[int]) -> tuple[str, StreamRedactor]:
    stream = StreamRedactor(redactor)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    out = [stream.feed(text[start:end]) for start, end in itertools.pairwise(places)]
    return "".join([*out, stream.finish()]), stream


@given(_TEXTS, st.lists(st.integers(0, 5000), max_size=8))
@settings(max_examples=200, deadline=None)
def test_a_stream_gives_what_the_whole_text_gives(text: str, cuts: list[int]) -> None:
    whole = _WITH_VALUE.redact(text)
    streamed, stream = _stream(_WITH_VALUE, text, cuts)
    assert streamed == whole.text
    assert (stream.level, tuple(sorted(stream.rules_hit))) == (whole.level, whole.rules_hit)


@given(
    st.sampled_from(SECRETS),
    st.lists(st.integers(0, 200_000), max_size=10),
    st.integers(0, 70_000),
    st.integers(0, 70_000),
)
@settings(max_examples=60, deadline=None)
def test_a_line_without_end_is_held_back_in_part_and_shows_no_secret(
    case: tuple[str, str, str], cuts: list[int], before: int, after: int
) -> None:
    rule, label, secret = case
    text = "." * before + " " + label + secret + _AFTER.get(rule, " ") + "." * after
    streamed, stream = _stream(_WITH_VALUE, text, cuts)
    assert streamed == text.replace(secret, f"[redacted:{rule}]")
    assert stream.rules_hit == {rule}


def test_holds_back_no_more_than_it_says(redactor: Redactor) -> None:
    stream = StreamRedactor(redactor)
    fed = given_out = 0
    for _ in range(200):
        given_out += len(stream.feed("x." * 500))
        fed += 1000
        assert fed - given_out <= stream_module.MAX_HELD_CHARS
    assert given_out + len(stream.finish()) == fed


def test_gives_out_a_line_as_soon_as_it_ends(redactor: Redactor) -> None:
    stream = StreamRedactor(redactor)
    assert [stream.feed(piece) for piece in ("one", " two\nthr", "ee\r40%\r", "end")] == [
        "",
        "one two\n",
        "three\r40%\r",
        "",
    ]
    assert stream.finish() == "end"


@pytest.mark.parametrize("name", ["jwt", "private-key"])
def test_a_secret_longer_than_what_is_held_back(redactor: Redactor, name: str) -> None:
    secret = _jwt() + _some(100_000) if name == "jwt" else _pem(2000)
    cuts = list(range(0, 200_000, 777))
    footer = secret[secret.index("-----END") :] if name == "private-key" else ""
    assert _stream(redactor, f"a {secret} b", cuts)[0] == f"a [redacted:{name}]{footer} b"


def _repeats(pattern: Any) -> list[tuple[int, bool, bool]]:
    """(greatest number of characters, possessive, last word of the pattern) of every repetition in a parsed pattern."""
    found: list[tuple[int, bool, bool]] = []

    def walk(nodes: Any, factor: int, is_last: bool) -> None:
        for place, (operation, value) in enumerate(nodes):
            last = is_last and place == len(nodes) - 1
            name = str(operation)
            if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
                _, most, inner = value
                found.append((int(most) * factor, name == "POSSESSIVE_REPEAT", last))
                walk(inner, factor * int(most), False)
            elif name == "SUBPATTERN":
                walk(value[3], factor, last)
            elif name == "BRANCH":
                for branch in value[1]:
                    walk(branch, factor, last)
            elif name == "ATOMIC_GROUP":
                walk(value, factor, last)
            elif name in ("ASSERT", "ASSERT_NOT"):
                walk(value[1], factor, False)

    walk(list(pattern), 1, True)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_work_of_a_pattern_at_one_place_has_a_bound(rule: Any) -> None:
    parser = re._parser  # type: ignore[attr-defined]
    for characters, possessive, last in _repeats(parser.parse(rule.pattern.pattern, rule.pattern.flags)):
        assert (possessive and last) or characters <= (8192 if possessive else 1024)


@pytest.mark.parametrize(
    "unit",
    [
        *sorted({needle for rule in RULES for needle in rule.needles}),
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nA",
        "0",
        "4111 ",
        "AA00",
        "eyJaaaaaaaaaaaaa.",
        "a",
        "://a:",
        "\n-",
    ],
)
def test_a_long_hostile_text_is_done_soon(redactor: Redactor, unit: str) -> None:
    text = unit * (128 * 1024 // len(unit))
    assert redactor.redact(text).text
    stream = StreamRedactor(redactor)
    assert "".join([stream.feed(text[place : place + 4096]) for place in range(0, len(text), 4096)]) + stream.finish()


def test_finds_nothing_in_the_standard_library() -> None:
    """A part of it that speaks of secrets, URLs and numbers; bench/redaction.py measures the rest."""
    import email
    import ssl
    import urllib.request

    redactor = Redactor()
    for module in (ssl, urllib.request, email, secrets_module(), json, random):
        with open(str(module.__file__), encoding="utf-8") as file:
            text = file.read()
        assert redactor.redact(text) == Redacted(text)


def secrets_module() -> Any:
    return sys.modules.get("secrets") or __import__("secrets")


@pytest.mark.parametrize("number, valid", [("79927398713", True), ("79927398710", False), ("0", True)])
def test_luhn(number: str, valid: bool) -> None:
    assert luhn(number) is valid


def test_a_card_needs_a_network_and_different_digits() -> None:
    assert is_card("4012 8888 8888 1881")
    assert not is_card("1234567812345670")
    assert not is_card("5555 5555 5555 5555")
