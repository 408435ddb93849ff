"""Prompts and conversations full of keys: none of them is kept, ordinary text is, and no text makes this slow."""

from __future__ import annotations

import hashlib
import json
import random
import re
import string
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from shadowsnap.store.redaction import FIELDS, FORMATS, RULES, redact

HEX, SMALL, CAPITALS = (
    "0123456789abcdef",
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
)
ALNUM = string.ascii_letters + string.digits
URL, BASE64 = ALNUM + "_-", ALNUM + "+/"


def made(length: int, alphabet: str = ALNUM) -> str:
    """Random text, the same each time. Made here, so that no scanner takes this file for a leak."""
    choose = random.Random(f"{length}{alphabet}")
    return "a1" + "".join(choose.choice(alphabet) for _ in range(length - 3)) + "f"


def capitals(length: int) -> str:
    return made(length, CAPITALS).upper()


UUID = "-".join(made(length, HEX) for length in (8, 4, 4, 4, 12))

# What each service documents, or what scanners look for.
TOKENS = {
    "E2B": "e2b_" + made(40, HEX), "Typeform dashes": "tfp_" + made(44, URL) + "_" + made(14, URL),
    "Yandex": "AQVN" + made(35, URL),
    "Azure DevOps": made(76) + "AZDO" + made(4),
    "Azure DevOps, older": "k2" + made(52, "abcdefghijklmnopqrstuvwxyz234567")[2:],
    "encrypted web token": f"eyJ{made(40, URL)}.{made(171, URL)}.{made(16, URL)}.{made(120, URL)}.{made(22, URL)}",
    "encrypted web token, direct key": f"eyJ{made(30, URL)}..{made(16, URL)}.{made(90, URL)}.{made(22, URL)}",
    "GitHub classic": "ghp_" + made(36), "GitHub OAuth": "gho_" + made(36), "GitHub user": "ghu_" + made(36),
    "GitHub server": "ghs_" + made(36), "GitHub refresh": "ghr_" + made(76),
    "GitHub fine-grained": "github_pat_" + made(22) + "_" + made(59),
    "GitLab personal": "glpat-" + made(20, URL),
    "GitLab routable": "glpat-" + made(27, URL) + ".01." + made(9, SMALL),
    "GitLab deploy": "gldt-" + made(20, URL), "GitLab runner": "glrt-" + made(20, URL),
    "GitLab old runner": "GR1348941" + made(20, URL), "GitLab trigger": "glptt-" + made(40, HEX),
    "GitLab feed": "glft-" + made(20, URL), "GitLab job": "glcbt-64_" + made(20, URL),
    "GitLab mail": "glimt-" + made(25, URL), "GitLab agent": "glagent-" + made(50, URL),
    "GitLab OAuth": "gloas-" + made(64, URL), "GitLab SCIM": "glsoat-" + made(20, URL),
    "GitLab flags": "glffct-" + made(20, URL), "GitLab session": "_gitlab_session=" + made(32, HEX),
    "Bitbucket app": "ATBB" + made(32), "Bitbucket server": "BBDC-" + made(44, BASE64),
    "Sourcegraph": "sgp_" + made(16, HEX) + "_" + made(40, HEX),
    "SonarQube": "squ_" + made(40, HEX), "Anthropic, hardly random": "sk-ant-api03-" + "ab1" * 20,
    "phpass": "$P$B" + made(30), "LDAP": "{SSHA}" + made(40, BASE64),
    "npm": "npm_" + made(36), "PyPI": "pypi-AgEIcHlwaS5vcmc" + made(70, URL),
    "RubyGems": "rubygems_" + made(48, HEX),
    "Clojars": "CLOJARS_" + made(60, HEX), "crates.io": "cio" + made(32), "NuGet": "oy2" + made(43, SMALL),
    "Docker personal": "dckr_pat_" + made(27, URL), "Docker organization": "dckr_oat_" + made(32, URL),
    "Artifactory": "AKCp" + made(69), "Artifactory reference": "cmVmd" + made(59),
    "AWS key": "AKIA" + capitals(16), "AWS session": "ASIA" + capitals(16), "AWS bearer": "ABIA" + capitals(16),
    "AWS Bedrock": "ABSK" + made(120, BASE64), "Google API": "AIza" + made(35, URL),
    "Google OAuth": "ya29." + made(120, URL), "Google refresh": "1//0" + made(60, URL),
    "Google client": "GOCSPX-" + made(28, URL), "Alibaba": "LTAI" + made(20), "Tencent": "AKID" + made(32),
    "DigitalOcean": "dop_v1_" + made(64, HEX), "DigitalOcean OAuth": "doo_v1_" + made(64, HEX),
    "DigitalOcean refresh": "dor_v1_" + made(64, HEX),
    "Cloudflare origin": "v1.0-" + made(24, HEX) + "-" + made(146, HEX),
    "Cloudflare user": "cfut_" + made(48, HEX),
    "Heroku": "HRKU-AA" + made(58, URL), "Fly": "fo1_" + made(43, URL), "Fly macaroon": "fm2_" + made(200, BASE64),
    "PlanetScale": "pscale_tkn_" + made(43), "PlanetScale password": "pscale_pw_" + made(43),
    "Supabase": "sbp_" + made(40, HEX), "Neon": "napi_" + made(64, SMALL), "Netlify": "nfp_" + made(36),
    "Vercel Blob": "vercel_blob_rw_" + made(16) + "_" + made(30), "Scaleway": "SCW" + capitals(17),
    "Scalingo": "tk-us-" + made(48, URL), "Render": "rnd_" + made(32), "OpenShift": "sha256~" + made(43, URL),
    "Databricks": "dapi" + made(32, HEX), "Databricks numbered": "dapi" + made(32, HEX) + "-2",
    "Tailscale": "tskey-auth-" + made(16) + "-" + made(32),
    "Vault service": "hvs." + made(95, URL), "Vault batch": "hvb." + made(150, URL),
    "Vault recovery": "hvr." + made(95, URL),
    "Vault old": "s." + made(24), "Terraform Cloud": made(14) + ".atlasv1." + made(67),
    "Pulumi": "pul-" + made(40, HEX), "Doppler": "dp.pt." + made(43),
    "Doppler service": "dp.st.dev-env." + made(43),
    "Infracost": "ico-" + made(32), "Prefect": "pnu_" + made(36),
    "Harness": f"pat.{made(22, URL)}.{made(24)}.{made(20)}", "Buildkite": "bkua_" + made(40, HEX),
    "CircleCI": "CCIPAT_" + made(22) + "_" + made(40, HEX), "Octopus": "API-" + capitals(26),
    "LaunchDarkly": "sdk-" + UUID, "Dynatrace": f"dt0c01.{capitals(24)}.{capitals(64)}",
    "Grafana service": "glsa_" + made(32) + "_" + made(8, HEX), "Grafana cloud": "glc_" + made(100, BASE64),
    "Grafana old": "eyJrIjoi" + made(80),
    "Sentry organization": "sntrys_eyJpYXQiO" + made(120, BASE64) + "_" + made(43),
    "Sentry user": "sntryu_" + made(64, HEX), "New Relic": "NRAK-" + capitals(27),
    "Rootly": "rootly_" + made(64, HEX),
    "PostHog": "phx_" + made(43), "Endor Labs": "endr+" + made(16), "age": "AGE-SECRET-KEY-1" + capitals(58),
    "1Password service": "ops_eyJ" + made(300, BASE64),
    "1Password key": "-".join(["A3", *map(capitals, (6, 6, 5, 5, 5, 5))]),
    "OpenAI old": "sk-" + made(20) + "T3BlbkFJ" + made(20), "OpenAI project": "sk-proj-" + made(156, URL),
    "OpenAI service": "sk-svcacct-" + made(156, URL), "OpenAI admin": "sk-admin-" + made(130, URL),
    "Anthropic": "sk-ant-api03-" + made(93, URL) + "AA",
    "Anthropic admin": "sk-ant-admin01-" + made(93, URL) + "AA",
    "Anthropic OAuth": "sk-ant-oat01-" + made(93, URL) + "AA", "OpenRouter": "sk-or-v1-" + made(64, HEX),
    "DeepSeek": "sk-" + made(32, HEX), "Langfuse": "sk-lf-" + UUID,
    "Hugging Face": "hf_" + made(34, string.ascii_letters),
    "Hugging Face organization": "api_org_" + made(34, string.ascii_letters), "Groq": "gsk_" + made(52),
    "xAI": "xai-" + made(80), "Perplexity": "pplx-" + made(48), "Replicate": "r8_" + made(37),
    "NVIDIA": "nvapi-" + made(64, URL), "LangSmith": f"lsv2_pt_{made(32, HEX)}_{made(10, HEX)}",
    "Pinecone": "pcsk_" + made(6) + "_" + made(63), "Cerebras": "csk-" + made(48, SMALL),
    "Tavily": "tvly-dev-" + made(32),
    "Fireworks": "fw_" + made(24), "Firecrawl": "fc-" + made(32, HEX), "Together": "tgp_v1_" + made(43, URL),
    "ElevenLabs": "sk_" + made(48, HEX), "Voiceflow": f"VF.DM.{made(24, HEX)}.{made(16)}",
    "Slack bot": "xoxb-" + "1234567890-" * 2 + made(24), "Slack user": "xoxp-" + "1234567890-" * 3 + made(32, HEX),
    "Slack app": "xapp-1-A0123-" + "1234567890-" + made(64, HEX), "Slack refresh": "xoxe-1-" + capitals(146),
    "Slack configuration": "xoxe.xoxp-1-" + capitals(163),
    "Slack legacy": "xoxs-" + "123456789-" * 3 + made(10, HEX),
    "Slack hook": "hooks.slack.com/services/T" + capitals(8) + "/B" + capitals(8) + "/" + made(24),
    "Discord bot": "M" + made(25) + "." + made(6) + "." + made(38, URL),
    "Discord hook": "discord.com/api/webhooks/123456789012345678/" + made(68, URL),
    "Telegram": "123456789:AA" + made(33, URL), "Twilio key": "SK" + made(32, HEX),
    "Twilio account": "AC" + made(32, HEX),
    "SendGrid": "SG." + made(22, ALNUM) + "." + made(43, ALNUM), "Mailgun": "key-" + made(32, HEX),
    "Mailchimp": made(32, HEX) + "-us12", "Brevo": "xkeysib-" + made(64, HEX) + "-" + made(16),
    "Resend": "re_" + made(8) + "_" + made(24), "Postman": "PMAK-" + made(24, HEX) + "-" + made(34, HEX),
    "Notion": "ntn_" + made(46), "Notion old": "secret_" + made(43), "Linear": "lin_api_" + made(40),
    "Atlassian": "ATATT3xFfGF0" + made(180, URL) + "=" + made(8), "Atlassian admin": "ATCTT3xFfG" + made(180, URL),
    "Airtable": "pat" + made(14) + "." + made(64, HEX), "Figma": "figd_" + made(40, URL),
    "Contentful": "CFPAT-" + made(43, URL),
    "Typeform": "tfp_" + made(44), "HubSpot": "pat-na1-" + UUID, "Adobe": "p8e-" + made(32),
    "Facebook": "EAAC" + made(150),
    "ReadMe": "rdme_" + made(70, SMALL), "Frame.io": "fio-u-" + made(64, URL), "Adafruit": "aio_" + made(28),
    "Deno": "ddp_" + made(36), "SettleMint": "sm_pat_" + made(16), "Mapbox": "sk.eyJ" + made(80),
    "MaxMind": made(6) + "_" + made(29) + "_mmk", "Dropbox": "sl.u." + made(140, URL),
    "Stripe live": "sk_live_" + made(24), "Stripe test": "sk_test_" + made(99),
    "Stripe restricted": "rk_live_" + made(24),
    "Stripe webhook": "whsec_" + made(32), "Square": "EAAA" + made(60), "Square OAuth": "sq0csp-" + made(43, URL),
    "Shopify": "shpat_" + made(32, HEX), "Shopify shared": "shpss_" + made(32, HEX),
    "Shopify app": "shpca_" + made(32, HEX),
    "Shopify private": "shppa_" + made(32, HEX), "Razorpay": "rzp_live_" + made(14),
    "Flutterwave": "FLWSECK_TEST-" + made(32, HEX) + "-X", "Plaid": "access-sandbox-" + UUID,
    "Shippo": "shippo_live_" + made(40, HEX), "EasyPost": "EZAK" + made(54),
    "Duffel": "duffel_test_" + made(43, URL),
    "Ramp": "ramp_sec_" + made(48), "Azure client": "abc8Q~" + made(34),
    "Azure signature": "?sv=1&sig=" + made(43) + "%3D",
    "JWT": "eyJ" + made(33) + ".eyJ" + made(80, URL) + "." + made(43, URL),
    "JWT in base64": "ZXlKaGJHY2lPaU" + made(80),
    "bcrypt": "$2b$12$" + made(53), "SHA-512 crypt": "$6$" + made(16) + "$" + made(86),
    "yescrypt": "$y$j9T$" + made(22) + "$" + made(43),
    "argon2": "$argon2id$v=19$m=65536,t=3,p=4$" + made(22) + "$" + made(43),
    "Apache": "$apr1$" + made(8) + "$" + made(22),
    "Django": "pbkdf2_sha256$600000$" + made(22) + "$" + made(43, BASE64) + "=",
}  # fmt: skip

# A name or a place says that it is one.
IN_CONTEXT = [
    "sshpass -p {} ssh host", '{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}', "client-key-data: {}",
    "https://me:{}@host.example/x", "postgresql://app:{}@db:5432/x", "redis://:{}@cache:6379",
    "git+https://u:{}@h/x.git", "https://u:a@b:{}@h/x.git", "https://{}@host.example/x.git",
    "curl -s -u me:{} https://host.example", "curl --user 'me:{}' https://host.example",
    "mysql --password={} shop", "mysqldump -u root -p{} shop", "docker login -u me -p {}", "gpg --passphrase {} x",
    "//registry.example/:_auth={}", "default login me password {}", "machine host.example password {}",
    "machine api.example.com login me password {}", "machine api.example.com\n  login me\n  password {}",
    "AWS_SECRET_ACCESS_KEY={}", "aws_secret_access_key = {}", "AccountKey={};EndpointSuffix=core.windows.net",
    "SharedAccessKey={}", '"private_key_id": "{}"', "OPENAI_API_KEY={}", "DB_PASSWORD={}", "export DB_PWD='{}'",
    "//registry.example/:_authToken={}", "Authorization: Bearer {}", "curl -H 'X-Api-Key: {}'",
    "Authorization: Basic {}",
    "client_secret={}&grant_type=x", "password: '{}'", "PASSPHRASE={}", "SSWS 00{}",
]  # fmt: skip


def test_there_are_more_than_a_hundred_formats() -> None:
    assert len(FORMATS) + len(RULES) > 130 and len(TOKENS) > 150
    assert len({row.name for row in FORMATS} | {rule.name for rule in RULES}) > 100


@pytest.mark.parametrize("service", TOKENS)
def test_a_token_goes_wherever_it_stands(service: str) -> None:
    token = TOKENS[service]
    secret = re.split(r"services/|webhooks/|sig=", token)[-1].encode()
    for text in (
        token,
        f"use {token} for it",
        f'x = "{token}"',
        f"({token})",
        f"a\n{token}\nb",
        f"<b>{token}</b>",
        f"`{token}`",
    ):
        kept, count = redact(text.encode())
        assert count == 1 and secret[3:-3] not in kept, text
    message = {"content": f"take\n{token}\nand\t{token}\tand go", "nested": json.dumps({"x": f"\n{token}\n"})}
    kept, count = redact(json.dumps(message).encode())
    assert count == 3 and secret[3:-3] not in kept
    found = json.loads(kept)
    assert (
        found["content"].startswith("take\n")
        and found["content"].endswith("\tand go")
        and json.loads(found["nested"])
    )


@pytest.mark.parametrize("text", IN_CONTEXT)
def test_what_a_name_or_a_place_gives_away_goes(text: str) -> None:
    secret = made(40)
    kept, count = redact(text.format(secret).encode())
    assert count == 1 and secret[3:-3].encode() not in kept
    kept, count = redact(json.dumps({"x": "a\n" + text.format(secret) + "\nb"}).encode())
    assert secret[3:-3].encode() not in kept and json.loads(kept)["x"].endswith("\nb")


@pytest.mark.parametrize("sign", ",;&<>(){}[]$%@!*+=^|~#?/.-_")
@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_password_in_quotes_goes_as_a_whole_whatever_signs_it_has(sign: str, at: int) -> None:
    password = "Xk9mQ2vTz"
    password = password[:at] + sign + password[at:] + "7Lw"
    for text in (f'password = "{password}"', f"'db_password': '{password}'", json.dumps({"passwd": password})):
        for kept in (redact(text.encode()), redact(json.dumps({"x": text}).encode())):
            assert kept[1] == 1 and not any(part in kept[0] for part in (b"Xk9", b"7Lw", b"2v")), kept


def test_every_row_of_the_table_finds_its_own_tokens() -> None:
    sets = [HEX, SMALL, CAPITALS, ALNUM, string.digits]
    for row in FORMATS:
        letters = max((each for each in sets if re.fullmatch(f"[{row.alphabet}]+", each)), key=len)
        choose = random.Random(row.prefixes)
        body = (
            "1"
            + next(filter(str.isalpha, letters))
            + "".join(choose.choice(letters) for _ in range(row.least - 2))
        )
        for prefix in row.prefixes.split():
            kept, count = redact(f"x {prefix}{body} y".encode())
            assert count == 1 and kept.startswith(b"x [redacted: ") and kept.endswith(b"] y"), (row, kept)


# --- what stays -------------------------------------------------------------------------------------------

ORDINARY = [
    "sk-fading-circle-container-wrapper, a1b2c3d4e5f6",
    "commit " + hashlib.sha1(b"x").hexdigest(), "sha256:" + hashlib.sha256(b"x").hexdigest(), UUID,
    "index 0123456..89abcdef 100644", "integrity sha512-" + "abcdEFGH" * 10 + "==", "pk_live_" + "x" * 4,
    "task-force-alpha-2000-and-more-words-here", "sk-fading-circle-container-wrapper-inner",
    "npm_config_registry_for_tests",
    'password="{password}"', '"password": "<yours-here>"', "password='%(password)s'", 'password: "${PASSWORD}"',
    'password="&nbsp;[a-z]+"', "password = self.password", "password: string`", "token = request.headers.get('x')",
    "secret_key_base: <%= x %>",
    "the default password policy is strict", "login prompts -p [port] or -print3",
    "requests.get(url, _auth=auth1)",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "the_names_of_functions_are_of_fifty_two_letters_2_3_4",
    "--password PASSWORD  what to log in with",
    "docker run -u 1000:1000 x",
    "https://example.com:8080/a@b", "git@github.com:someone/something.git", "http://localhost:3000/@vite/client",
    "npm_lifecycle_event_name_of_this_one", "s.someMethodNameOfThisLength()", "hf_hub_download(repo_id='x')",
    "re_compile_with_cache",
    "dapi", "EAA", "the basic understanding of things", "the bearer of bad news from 1999",
    "machine learning login password reset",
    "import sk_learn_something_with_long_names_and_more_words", "api_key: none", "TOKEN_LIMIT=200000",
    "max_tokens: 1234567890",
    "-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN PUBLIC KEY-----\nMIIB", "$1$ and $2 and $6 for 5$ each",
    "key=lambda row: row[1]",
    "primary_key=True, cache_key='user_12_profile_34'", "sig=short",
    "patience.and.more.patience.with.dots.and.words",
    "C:\\new\\table\\file",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
]  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text.encode()) == (text.encode(), 0)
    assert redact(json.dumps(text).encode()) == (json.dumps(text).encode(), 0)


def test_source_code_stays_but_for_less_than_one_place_in_a_megabyte() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [
        path
        for path in sorted(library.glob("*.py")) + sorted(library.glob("[a-s]*/*.py"))
        if "test" not in str(path)
    ]
    files += sorted((ROOT / "shadowsnap").rglob("*.py"))
    texts = [path.read_bytes() for path in files if "site-packages" not in path.parts]
    found = sum(redact(text)[1] for text in texts)
    assert found <= sum(map(len, texts)) / 1_000_000


def test_a_history_with_object_ids_stays() -> None:
    sha = (hashlib.sha1(b"%d" % number).hexdigest() for number in range(10_000))
    text = "\n".join(
        f"commit {each}\nindex {each[:12]}..{each[12:24]} 100644\n:100644 {each} M\tsrc/{each[:7]}.py"
        for each in sha
    )
    assert redact(text.encode())[1] == 0


def test_this_repositorys_own_history_stays() -> None:
    command = [
        "git",
        "log",
        "-p",
        "--full-index",
        "--raw",
        "-n",
        "30",
        "--",
        "shadowsnap/engine",
        "shadowsnap/git",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60)
    assert redact(done.stdout)[1] <= len(done.stdout) / 1_000_000


# --- JSON stays JSON --------------------------------------------------------------------------------------

pieces = st.sampled_from(
    [*(row.prefixes.split()[0] for row in FORMATS), *(each.decode() for rule in RULES for each in rule.literals)]
    + [
        *(field.decode() for field in FIELDS),
        *TOKENS.values(),
        "pm_" + made(36),
        "\n",
        "\t",
        "\\",
        '"',
        "'",
        ": ",
        "=",
        "\\n",
    ]
    + [
        made(12),
        made(40),
        "é",
        "\x00",
        "/",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        ".eyJ",
        "eyJ",
    ]
)


@given(st.lists(pieces, max_size=12), st.integers(0, 2))
def test_whatever_stands_in_json_it_remains_json(parts: list[str], depth: int) -> None:
    text = "".join(parts)
    for _ in range(depth):
        text = json.dumps({"text": text})
    kept, _ = redact(json.dumps({"text": text, "more": [text]}).encode())
    assert json.loads(kept).keys() == {"text", "more"}


def test_the_letter_of_an_escape_stays() -> None:
    kept, count = redact(json.dumps({"x": "a\npm_" + made(36)}).encode())
    assert count == 1 and json.loads(kept)["x"].startswith("a\n[redacted")
    kept, count = redact(json.dumps({"token": 1, "x": "token: \nabcdefgh12345678"}).encode())
    assert json.loads(kept)


# --- time -------------------------------------------------------------------------------------------------

PREFIXES = [prefix for row in FORMATS for prefix in row.prefixes.split()]
LITERALS = [literal.decode() for rule in RULES for literal in rule.literals]
HOSTILE = [
    *(each + more for each in (*PREFIXES, *LITERALS) for more in ("", "-", "A1b2-", "0" * 15 + ".")),
    *(field.decode() + more for field in FIELDS for more in ("", "=", "=1a", ': "', "='", "=" + "a1" * 100)),
    "a", "-", "_", "a1", " ", "\\", '"', "eyJ", "eyJ-", ".eyJ", "eyJ.", "eyJ.eyJ", "-eyJaaaaaaaaaaaa.eyJ", "://",
    "://a:",
    "://a:b@", "-----BEGIN", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n-----END",
    "M" * 25 + ".", "api_key=",
    "machine a login b ", "$6$rounds=1$a$", "1Q~", "0123456789:AA", "\\n", "\\u00e9", "%3D",
]  # fmt: skip


def seconds(text: bytes) -> float:
    start = time.process_time()
    redact(text)
    return time.process_time() - start


def test_no_repetition_takes_more_than_linear_time() -> None:
    """What was quadratic took minutes for this size; what is linear takes a fraction of a second."""
    slow = []
    for piece in HOSTILE:
        size = 6_000 // len(piece)
        if seconds(piece.encode() * size) > 0.015:
            short, long = (min(seconds(piece.encode() * size * factor) for _ in range(3)) for factor in (1, 4))
            if long > 4 * 2 * short + 0.05 or short > 0.5:
                slow.append((piece, short, long))
    assert not slow


def test_a_prompt_of_nothing_but_prefixes_takes_no_time() -> None:
    assert min(seconds(b"sk-" * 66_667) for _ in range(3)) < 0.1


def test_a_long_conversation_takes_about_a_second() -> None:
    text = json.dumps([path.read_text("utf-8") for path in sorted((ROOT / "shadowsnap").rglob("*.py"))]).encode()
    text *= 5_000_000 // len(text) + 1
    assert min(seconds(text) for _ in range(2)) < 5 * len(text) / 20_000_000


def test_the_table_is_compiled_quickly() -> None:
    program = (
        "from time import *; a = process_time(); import shadowsnap.store.redaction; print(process_time() - a)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1
