"""Payloads as anybody may send them: read faithfully, or refused with one kind of error that says where."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.calls import JobId, ToolCall, check_name, read_job_id
from contracts.codec import content_digest, decode_call, decode_reply, encode_call, payload_digest
from contracts.tools import TOOLS, EditFileArgs, ReadFileArgs, WriteFileArgs
from tests.contracts import records

JOB = JobId("q", "s", "c")
ET = 1_796_000_000_000


def payload(args: str | bytes = b'{"path":"a"}', tool: str = "read_file", body: str = "", end: str = "") -> bytes:
    raw = args if isinstance(args, bytes) else args.encode()
    return b'{"t":null,"f":"%s","a":[{"v":1,"args":%s%s}],"k":{},"et":1%s}' % (
        tool.encode(),
        raw,
        body.encode(),
        end.encode(),
    )


def refusal(data: bytes) -> str:
    payload_digest(data)
    with pytest.raises(ValueError, match=r".") as caught:
        decode_call(JOB, data)
    return str(caught.value)


def test_a_call_is_read_as_it_was_sent() -> None:
    data = encode_call(
        "edit_file",
        EditFileArgs(path="a", old_text="x", new_text=""),
        enqueued_ms=ET,
        deadline_ms=ET + 1,
        priority="batch",
        trace="t",
    )
    call, digest = decode_call(JOB, data)
    assert call == ToolCall(
        session="s",
        call="c",
        tool="edit_file",
        args=EditFileArgs(path="a", old_text="x", new_text=""),
        deadline_ms=ET + 1,
        priority="batch",
        trace="t",
    )
    assert digest == payload_digest(data)


def test_plain_objects_and_structs_make_the_same_payload() -> None:
    plain = encode_call("read_file", {"path": "a", "limit": 3}, enqueued_ms=ET)
    assert plain == encode_call("read_file", ReadFileArgs(path="a", limit=3), enqueued_ms=ET)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "Input data was truncated"),
        (b"null", "Expected `object`, got `null` - at `$`"),
        (b"[]", "Expected `object`, got `array` - at `$`"),
        (b"\xef\xbb\xbf" + payload(), "JSON is malformed: invalid character (byte 0)"),
        (payload() + b"x", "JSON is malformed: trailing characters (byte 75)"),
        (payload(end=',"x":1'), "Object contains unknown field `x` - at `$`"),
        (payload(body=',"sandbox":"off"'), "Object contains unknown field `sandbox` - at `$.a[0]`"),
        (payload('{"path":"a","dry-run":true}'), "Object contains unknown field `dry-run` - at `$.a[0].args`"),
        (payload("{}"), "Object missing required field `path` - at `$.a[0].args`"),
        (payload("null"), "Expected `object`, got `null` - at `$.a[0].args`"),
        (payload('{"path":1}'), "Expected `str`, got `int` - at `$.a[0].args.path`"),
        (payload('{"path":"a","offset":0}'), "Expected `int` >= 1 - at `$.a[0].args.offset`"),
        (payload('{"path":"a","offset":1.5}'), "Expected `int | null`, got `float` - at `$.a[0].args.offset`"),
        (payload(body=',"priority":"batch\\n"'), "Invalid enum value 'batch\\n' - at `$.a[0].priority`"),
        (payload(body=',"deadline_ms":-1'), "Expected `int` >= 0 - at `$.a[0].deadline_ms`"),
        (payload().replace(b'"a":[{', b'"a":[{"v":1,"args":{}},{'), "expected one positional argument"),
        (payload().replace(b'"k":{}', b'"k":{"x":1}'), "expected one positional argument and no keyword arguments"),
        (payload().replace(b'"v":1', b'"v":2'), "version 2 is not known here, 1 is - at `$.a[0].v`"),
        (payload(tool="rm"), "unknown tool 'rm', the tools are: "),
        (payload(tool="x" * 100_000), f"unknown tool '{'x' * 64}', the tools are: "),
        (
            payload('{"path":"a","content":"","if_match":"%s\\n"}' % ("a" * 64), "write_file"),
            "Expected `str` of length",
        ),
    ],
)
def test_what_is_wrong_is_refused_and_named(data: bytes, message: str) -> None:
    assert refusal(data).startswith(message)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        payload(b"[" * 100_000 + b"]" * 100_000),
        payload(b'{"path":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
        payload().replace(b'"k":{}', b'"k":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ],
    ids=["unclosed", "args", "in a field", "keyword arguments"],
)
def test_bottomless_nesting_is_refused(data: bytes) -> None:
    refusal(data)


def test_nesting_says_where() -> None:
    assert refusal(payload(b'{"path":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")).startswith(
        "nested too deeply"
    )


@pytest.mark.parametrize("text", [r"\ud800", r"\udc00", r"\ud800\ud800", r"a\udfffb"])
@pytest.mark.parametrize("place", ['{"path":"%s"}', '{"path":"a","%s":1}'])
def test_a_lone_surrogate_is_refused(text: str, place: str) -> None:
    refusal(payload(place % text))


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"])
def test_bytes_that_are_not_utf8_are_refused(raw: bytes) -> None:
    refusal(payload(b'{"path":"%s"}' % raw))


@pytest.mark.parametrize("text", ["😀", "e\u0301", "\0", "\u2028", "\ufeff", "\U0010ffff"])
def test_every_character_survives_both_spellings(text: str) -> None:
    for ascii_only in (True, False):
        call, _ = decode_call(JOB, payload(json.dumps({"path": text}, ensure_ascii=ascii_only)))
        assert call.args.path == text


@pytest.mark.parametrize("number", ["9007199254740992", str(2**63), str(2**64), "9" * 400, "9" * 5000])
@pytest.mark.parametrize("place", ['{"path":"a","offset":%s}', '{"path":"a","byte_limit":%s}'])
def test_numbers_that_not_every_language_reads_are_refused(number: str, place: str) -> None:
    refusal(payload(place % number))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, "-1", "NaN", "Infinity", "0x10", "01"])
def test_times_out_of_range_are_refused(number: str) -> None:
    refusal(payload(body=f',"deadline_ms":{number}'))
    refusal(payload().replace(b'"et":1', b'"et":' + number.encode()))


def test_of_a_key_given_twice_the_last_counts_everywhere() -> None:
    twice = '{"path":"a","content":"x","dry_run":true,"dry_run":false}'
    call, digest = decode_call(JOB, payload(twice, "write_file"))
    assert call.args == WriteFileArgs(path="a", content="x")
    once = b'{"path":"a","content":"x","dry_run":false}'
    assert digest == content_digest("write_file", once)


def test_the_digest_sees_content_and_not_spelling() -> None:
    spellings = [
        payload('{"path":"ä","limit":3}'),
        payload('{ "limit" : 3, "path" : "\\u00e4" }'),
        payload('{"path":"ä","limit":3}', body=',"trace":"other"'),
    ]
    assert len({payload_digest(each) for each in spellings}) == 1
    others = [
        payload('{"path":"b","limit":3}'),
        payload('{"path":"ä","limit":4}'),
        payload('{"path":"ä"}', "list_directory"),
    ]
    assert len({payload_digest(each) for each in [*spellings, *others]}) == 4


def test_what_cannot_be_decoded_has_the_digest_of_its_bytes() -> None:
    assert payload_digest(b"{") != payload_digest(b"{{")
    assert len(payload_digest(b"[" * 1_000_000)) == 32


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
field_names = (
    st.sampled_from(sorted({name for tool in TOOLS.values() for name in tool.args.__struct_fields__})) | st.text()
)


@settings(max_examples=150, deadline=None)
@given(
    tool=st.sampled_from(sorted(TOOLS)) | st.text(max_size=20),
    args=st.dictionaries(field_names, json_values, max_size=5) | json_values,
    body=st.dictionaries(st.sampled_from(["v", "deadline_ms", "priority", "trace", "x"]), json_values, max_size=2),
    envelope=st.dictionaries(st.sampled_from(["t", "f", "a", "k", "et", "x"]), json_values, max_size=1),
)
def test_any_json_is_a_call_or_a_value_error(tool: str, args: Any, body: Any, envelope: Any) -> None:
    job = {"t": None, "f": tool, "a": [{"v": 1, "args": args, **body}], "k": {}, "et": 1, **envelope}
    data = json.dumps(job).encode()
    try:
        call, digest = decode_call(JOB, data)
    except ValueError:
        assert len(payload_digest(data)) == 32
    else:
        assert type(call.args) is TOOLS[call.tool].args
        assert digest == payload_digest(data)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_value_error(data: bytes) -> None:
    refusal(data)
    with pytest.raises(ValueError, match=r"."):
        decode_reply(data)


@settings(max_examples=150, deadline=None)
@given(
    data=st.sampled_from([encode_call(tool, args, enqueued_ms=ET) for tool, (args, _) in records.TOOLS.items()]),
    place=st.floats(0, 1, exclude_max=True),
    cut=st.integers(0, 4),
    new=st.binary(max_size=4),
)
def test_a_call_with_a_spoilt_spot_is_read_or_a_value_error(data: bytes, place: float, cut: int, new: bytes) -> None:
    at = int(place * len(data))
    spoilt = data[:at] + new + data[at + cut :]
    try:
        decode_call(JOB, spoilt)
    except ValueError:
        pass
    assert len(payload_digest(spoilt)) == 32


def test_a_reply_of_unknown_kind_or_shape_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"Invalid value 'later' - at `\$.kind`"):
        decode_reply(b'{"kind":"later","session":"s","call":"c"}')
    with pytest.raises(msgspec.DecodeError, match=r"Object missing required field `tool` - at `\$`"):
        decode_reply(b'{"kind":"completed","session":"s","call":"c"}')
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        decode_reply(b'{"kind":"completed","session":"s","call":"c","tool":"t","output":' + b"[" * 10**6)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "9" * 64])
def test_names_that_may_be_part_of_a_job_id(name: str) -> None:
    assert check_name("call id", name) == name
    assert read_job_id(str(JobId("q", name, name))) == JobId("q", name, name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "a b", "a:b", "a{", "a\n", "ä", "٣", "a" * 65, "a/b", "a\0"])
def test_names_that_may_not(name: str) -> None:
    with pytest.raises(ValueError, match=r"call id .* must be 1 to 64 letters"):
        check_name("call id", name)
    with pytest.raises(ValueError, match="not a job id"):
        read_job_id(str(JobId("q", "s", name)))
