"""What is taken out of conversations before they are kept, and what is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.store.redaction import redact, redacted_beginning, redacted_text

# Put together here, so that no scanner takes this file for a leak.
A, D = "aB3dE5gH7j", "0123456789"
KEY = "-----BEGIN {}PRIVATE KEY-----\nMIIEow" + A * 3 + "\n" + D * 4 + "\n-----END {}PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("aws-key", "AKIA" + "Q7" * 8),
        ("github-token", "ghp_" + A * 4),
        ("github-token", "github_pat_" + A * 5),
        ("gitlab-token", "glpat-" + A * 2),
        ("slack-token", "xoxb-" + D + "-" + A),
        ("api-key", "sk-ant-api03-" + A * 3),
        ("api-key", "sk-proj-" + A * 3),
        ("stripe-key", "sk_live_" + A * 2),
        ("google-key", "AIza" + A * 3 + "abcde"),
        ("google-token", "ya29." + A * 3),
        ("npm-token", "npm_" + A * 3 + "abcdef"),
        ("pypi-token", "pypi-" + A * 6),
        ("huggingface-token", "hf_" + A * 4),
        ("sendgrid-key", "SG." + A * 2 + "." + A * 3),
        ("digitalocean-token", "dop_v1_" + "0a1b2c3d" * 8),
        ("web-token", "eyJ" + A + ".eyJ" + A * 2 + "." + A * 2),
        ("private-key", KEY.format("RSA ", "RSA ")),
        ("private-key", KEY.format("", "")),
        ("private-key", KEY.format("OPENSSH ", "OPENSSH ").partition("-----END")[0]),
    ],
)
def test_a_token_of_a_known_shape_goes_wherever_it_stands(name: str, secret: str) -> None:
    for text in (f"here: {secret} !", f"({secret})", f"first\n{secret}", secret):
        told, count = redact(text.encode())
        assert secret.encode() not in told and count == 1
        assert f"[redacted: {name}]".encode() in told
    message = {"content": f"take\t{secret}\nand go", "nested": json.dumps({"x": secret})}
    kept, count = redact(json.dumps(message).encode())
    assert count == 2
    assert secret not in json.loads(kept)["content"] and secret not in json.loads(kept)["nested"]
    assert json.loads(kept)["content"].endswith(" go") and json.loads(json.loads(kept)["nested"])


@pytest.mark.parametrize(
    "text",
    [
        'api_key = "{}"', "API-KEY: {}", '"apiKey":"{}"', "AWS_SECRET_ACCESS_KEY={}", "x-auth-token: {}",
        '{{"client_secret": "{}"}}', r'{{\"refresh_token\": \"{}\"}}', "Authorization: Bearer {}", "token={}&x=1",
        "password: {}", "'passphrase' => '{}'", "curl -H 'Authorization: Basic {}'", "credentials: {}",
    ],
)  # fmt: skip
def test_what_looks_random_in_a_field_for_keys_goes(text: str) -> None:
    secret = "f81b5cA0" + A
    told, count = redact(text.format(secret).encode())
    assert secret.encode() not in told and count == 1
    assert told.startswith(text.format(secret).partition(secret)[0].encode()[:4])  # the name of the field stays


def test_a_password_in_an_address_goes_and_the_address_stays() -> None:
    assert redact(b"postgres://me:s3cret@db:5432/x")[0] == b"postgres://me:[redacted: password]@db:5432/x"


@pytest.mark.parametrize(
    "text",
    [
        "the token is invalid, the secret of success, a password manager",
        '{"usage":{"input_tokens":120945,"cache_read_input_tokens":1234567890123}}',
        "max_tokens: 4096000000000", "const token = generateTokenForUser2(id)", "password: string, token: number",
        "tokenizer = cl100k_base_encoding", "export TOKEN=$MY_TOKEN_2_FROM_ENV", "task-0123456789abcdefghijklmno",
        "https://example.com:8080/a@b", "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "see sk-learn and risk-based-approaches-in-1999", "api_key: none", "-----BEGIN CERTIFICATE-----\nMIIB",
    ],
)  # fmt: skip
def test_ordinary_talk_stays_as_it_is(text: str) -> None:
    assert redact(text.encode()) == (text.encode(), 0)


def test_the_persons_own_patterns_count_too() -> None:
    text = "Employee 12345 of Müller [intern"
    assert redacted_text(text, [r"\b\d{5}\b"]) == "Employee [redacted: own] of Müller [intern"
    assert redacted_text(text, ["Müller"]) == "Employee 12345 of [redacted: own] [intern"
    # Not a regular expression: then it means itself, rather than nothing.
    assert redacted_text(text, ["[intern"]) == "Employee 12345 of Müller [redacted: own]"


def test_a_secret_is_gone_before_a_text_is_cut() -> None:
    text = "x" * 90 + " ghp_" + A * 4
    assert redacted_beginning(text, 100) == "x" * 90 + " [redacted"
    assert redacted_beginning("short", 100) == "short"


def test_secrets_that_overlap_are_one() -> None:
    told, count = redact(f'token: "ghp_{A * 4}"'.encode(), [f"p_{A}.*"])
    assert A.encode() not in told and count == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
secrets = st.sampled_from(["ghp_" + A * 4, f"password={A}", f'"api_key": "{A * 2}"', KEY.format("", "")])


@given(json_values, st.lists(secrets, max_size=3))
def test_what_was_json_remains_json(value: object, found: list[str]) -> None:
    whole = {"value": value, "text": " and ".join(found)}
    told, count = redact(json.dumps(whole).encode())
    assert json.loads(told).keys() == whole.keys()
    assert count >= len(found)


@given(st.binary())
def test_any_bytes_can_be_redacted(data: bytes) -> None:
    told, count = redact(data)
    assert told == data or count
