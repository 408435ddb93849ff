"""Taking secrets out of conversations before they are kept.

What is looked for: tokens of known formats (`FORMATS`), private keys, passwords in addresses and
`.netrc` lines, password hashes, values that look random in fields that are named like keys, and
the person's own patterns. Files in checkpoints never come through here: they stay exact.

Time is linear in the size of the text, whatever it says, and low: a token is a long run of
letters and digits, and most text has few of those. So the runs are found first, with a search
that skips through the text, and only they are compared with the formats.

False positives were measured on source code: 1 in the 12 MB of Python's standard library without
its tests (0.1 per MB; 3.4 in the tests, which are full of made-up logins), 1 in 27 MB of installed
packages, none in this repository and in 3 MB of its `git log -p --full-index`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

_LONGEST = 20_000
"""No secret is longer."""

# --- formats: what each service's tokens look like ------------------------------------------------------

_ALNUM = "A-Za-z0-9"
_URL = "A-Za-z0-9_-"
_DOTTED = "A-Za-z0-9_.-"
_BASE64 = "A-Za-z0-9+/="
_HEX = "a-f0-9"
_ANY_HEX = "A-Fa-f0-9"
_CAPITALS = "A-Z0-9"
_SMALL = "a-z0-9"
_UUID = "a-f0-9-"
_OPEN = _LONGEST
"""As many as there are: the prefix alone is telling, and services make their tokens longer over time."""


class Format(NamedTuple):
    """Tokens that begin with one of a few literals and go on with letters of one alphabet.

    Where `least` and `most` are the same, the token ends there: one letter more and it is
    something else. `random` is for prefixes that ordinary words have too: what follows must look
    random, see `_looks_random`.
    """

    name: str
    prefixes: str
    alphabet: str
    least: int
    most: int
    random: bool = False


FORMATS = (
    # Code hosts and registries
    Format("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 20, _OPEN),
    Format("sonarqube-token", "sqp_ squ_ sqa_", _HEX, 40, 40),
    Format("github-token", "github_pat_", "A-Za-z0-9_", 20, _OPEN),
    Format("gitlab-token", "glpat- gldt- glrt- glrtr- glptt- glft- glcbt- glimt- glagent- gloas- glsoat- glffct- "
           "glwt-", _DOTTED, 20, _OPEN),
    Format("gitlab-token", "GR1348941", _URL, 20, _OPEN),
    Format("gitlab-session", "_gitlab_session=", _SMALL, 32, 32),
    Format("bitbucket-token", "ATBB", "A-Za-z0-9_=", 28, 40, True),
    Format("bitbucket-token", "BBDC-", _BASE64, 40, 60),
    Format("sourcegraph-token", "sgp_", "A-Za-z0-9_", 40, 80),
    Format("npm-token", "npm_", _ALNUM, 36, 36),
    Format("pypi-token", "pypi-", _URL, 50, _OPEN),
    Format("rubygems-token", "rubygems_", _HEX, 48, 48),
    Format("clojars-token", "CLOJARS_", _ALNUM, 60, 60),
    Format("crates-token", "cio", _ALNUM, 32, 32, True),
    Format("nuget-key", "oy2", _SMALL, 43, 43, True),
    Format("docker-token", "dckr_pat_ dckr_oat_", _URL, 20, _OPEN),
    Format("artifactory-token", "AKCp", _ALNUM, 60, 80, True),
    Format("artifactory-token", "cmVmd", _ALNUM, 59, 59),
    # Clouds
    Format("aws-key", "AKIA ASIA ABIA ACCA", _CAPITALS, 16, 16),
    Format("aws-key", "A3T", _CAPITALS, 17, 17, True),
    Format("aws-key", "ABSK", _BASE64, 100, 280),
    Format("aws-key", "bedrock-api-key-", _BASE64, 30, _OPEN),
    Format("google-key", "AIza", _URL, 35, 35),
    Format("google-token", "ya29.", _DOTTED, 20, _OPEN),
    Format("google-token", "1//0", _URL, 38, 120, True),
    Format("google-secret", "GOCSPX-", _URL, 20, 40),
    Format("alibaba-key", "LTAI", _ALNUM, 16, 24, True),
    Format("yandex-key", "AQVN", _URL, 35, 38, True),
    Format("tencent-key", "AKID", _ALNUM, 32, 32, True),
    Format("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 64, 64),
    Format("cloudflare-key", "v1.0-", _UUID, 171, 171),
    Format("cloudflare-token", "cfut_ cfat_ cfk_", _ALNUM, 37, 64),
    Format("heroku-key", "HRKU-", _URL, 36, 80),
    Format("fly-token", "fo1_", _URL, 43, 43),
    Format("fly-token", "fm1a_ fm1r_ fm2_", _BASE64, 60, _OPEN),
    Format("planetscale-token", "pscale_tkn_ pscale_oauth_ pscale_pw_", _DOTTED, 32, 80),
    Format("supabase-token", "sbp_ sb_secret_", "A-Za-z0-9_", 30, 60),
    Format("neon-token", "napi_", _SMALL, 64, 64),
    Format("netlify-token", "nfp_", _ALNUM, 36, 40),
    Format("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", _ALNUM, 24, 80),
    Format("vercel-token", "vercel_blob_rw_", "A-Za-z0-9_", 30, 80),
    Format("scaleway-key", "SCW", _CAPITALS, 17, 17, True),
    Format("scalingo-token", "tk-us-", _URL, 48, 48),
    Format("render-key", "rnd_", _ALNUM, 32, 32),
    Format("openshift-token", "sha256~", _URL, 43, 43),
    Format("databricks-token", "dapi dose dkea", "a-f0-9-", 32, 36),
    Format("confluent-secret", "cflt", "A-Za-z0-9/+", 60, 64, True),
    Format("tailscale-key", "tskey-", "A-Za-z0-9_-", 20, 120),
    # Infrastructure
    Format("hashicorp-token", "hvs. hvb. hvr.", _URL, 24, _OPEN),
    Format("hashicorp-token", "s.", _ALNUM, 24, 24, True),
    Format("pulumi-token", "pul-", _HEX, 40, 40),
    Format("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", _DOTTED, 40, 90),
    Format("infracost-token", "ico-", _ALNUM, 32, 32),
    Format("prefect-token", "pnu_ pnb_", _ALNUM, 36, 36),
    Format("harness-token", "pat. sat.", _DOTTED, 66, 72),
    Format("buildkite-token", "bkua_ bkat_ bkct_", _SMALL, 40, 60),
    Format("circleci-token", "CCIPAT_ CCIPRJ_", "A-Za-z0-9_", 60, 66),
    Format("octopus-key", "API-", _CAPITALS, 26, 31, True),
    Format("launchdarkly-key", "api- sdk- mob-", _UUID, 36, 36),
    Format("dynatrace-token", "dt0c01. dt0s01. dt0s02.", "A-Z0-9.", 80, 100),
    Format("grafana-token", "glsa_", "A-Za-z0-9_", 41, 41),
    Format("grafana-token", "glc_ eyJrIjoi", _BASE64, 32, _OPEN),
    Format("sentry-token", "sntrys_", "A-Za-z0-9+/=_", 80, _OPEN),
    Format("sentry-token", "sntryu_ sntryi_", _HEX, 64, 64),
    Format("newrelic-key", "NRAK- NRIQ- NRJS- NRII- NRRA- NRSP- NRBR-", _URL, 19, 44),
    Format("rootly-token", "rootly_", _HEX, 64, 64),
    Format("posthog-key", "phx_ phs_", "A-Za-z0-9_", 40, 60),
    Format("snyk-token", "snyk_uat. snyk_sat.", "A-Za-z0-9_.-", 40, _OPEN),
    Format("endorlabs-key", "endr+", "A-Za-z0-9-", 16, 16),
    Format("1password-token", "ops_eyJ", _BASE64, 100, _OPEN),
    Format("1password-key", "A3-", "A-Z0-9-", 32, 37),
    Format("age-key", "AGE-SECRET-KEY-1", _CAPITALS, 50, 70),
    # Models
    Format("api-key", "sk-ant- sk-proj- sk-svcacct- sk-or-v1-", _URL, 20, _OPEN),
    Format("api-key", "sk-", _URL, 20, _OPEN, True),
    Format("huggingface-token", "hf_ api_org_", _ALNUM, 30, 60),
    Format("groq-key", "gsk_", _ALNUM, 40, 64),
    Format("xai-key", "xai-", "A-Za-z0-9_", 60, 100),
    Format("perplexity-key", "pplx-", _ALNUM, 40, 64),
    Format("replicate-token", "r8_", _URL, 37, 37),
    Format("nvidia-key", "nvapi-", _URL, 50, 80),
    Format("langsmith-key", "lsv2_pt_ lsv2_sk_ ls__", "A-Za-z0-9_", 32, 64),
    Format("pinecone-key", "pcsk_", "A-Za-z0-9_", 50, 80),
    Format("cerebras-key", "csk-", _SMALL, 48, 48),
    Format("fireworks-key", "fw_", _ALNUM, 24, 24, True),
    Format("tavily-key", "tvly-", _URL, 28, 60, True),
    Format("firecrawl-key", "fc-", _HEX, 32, 32),
    Format("together-key", "tgp_v1_", _URL, 40, 60),
    Format("modal-token", "ak- as-", _ALNUM, 22, 22, True),
    Format("elevenlabs-key", "sk_", _HEX, 48, 48),
    Format("e2b-key", "e2b_", _HEX, 40, 40),
    Format("voiceflow-key", "VF.", "A-Za-z0-9.", 41, 48, True),
    Format("langfuse-key", "pk-lf-", _UUID, 36, 36),
    # Talking and tracking
    Format("slack-token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp- xapp- "
           "xwfp-", "A-Za-z0-9%-", 12, _OPEN),
    Format("twilio-key", "SK AC", _HEX, 32, 32),
    Format("sendgrid-key", "SG.", _DOTTED, 40, 70, True),
    Format("mailgun-key", "key-", _HEX, 32, 32),
    Format("mailgun-key", "pubkey-", _HEX, 32, 32),
    Format("brevo-key", "xkeysib- xsmtpsib-", "A-Za-z0-9-", 70, 90),
    Format("resend-key", "re_", "A-Za-z0-9_", 32, 40, True),
    Format("postmark-token", "PMAK-", "a-f0-9-", 59, 59),
    Format("notion-token", "ntn_", _ALNUM, 40, 50),
    Format("notion-token", "secret_", _ALNUM, 43, 43, True),
    Format("linear-key", "lin_api_ lin_oauth_ lin_wh_", _ALNUM, 40, 64),
    Format("atlassian-token", "ATATT3 ATCTT3 ATSTT3", "A-Za-z0-9_=-", 40, _OPEN),
    Format("asana-token", "1/1 2/1", "0-9a-f/:", 45, 80),
    Format("airtable-token", "pat", "A-Za-z0-9.", 79, 79, True),
    Format("figma-token", "figd_ figp_ figu_ figh_ figo_", _URL, 36, 80),
    Format("contentful-token", "CFPAT-", _URL, 40, 60),
    Format("typeform-token", "tfp_", "A-Za-z0-9_.=-", 40, 60),
    Format("hubspot-token", "pat-na1- pat-na2- pat-eu1-", _UUID, 36, 36),
    Format("intercom-token", "dG9r", _BASE64, 56, 60),
    Format("adobe-secret", "p8e- p4e-", _ALNUM, 32, 32),
    Format("facebook-token", "EAA", _ALNUM, 80, _OPEN, True),
    Format("instagram-token", "IGQV IGAA", _URL, 80, _OPEN, True),
    Format("twitch-token", "oauth:", _SMALL, 30, 30),
    Format("dropbox-token", "sl.u. sl.", _URL, 100, _OPEN),
    Format("readme-key", "rdme_", _SMALL, 70, 70),
    Format("frameio-token", "fio-u-", _URL, 64, 64),
    Format("adafruit-key", "aio_", _ALNUM, 28, 28),
    Format("deno-token", "ddp_ ddw_", _ALNUM, 36, 36),
    Format("authress-key", "scauth_ authress_", "A-Za-z0-9_.+/=-", 60, 190, True),
    Format("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", _ALNUM, 16, 16),
    Format("maps-token", "sk.eyJ", _DOTTED, 60, 240),
    Format("web-token", "ZXlKaGJHY2lPaU ZXlKMGVYQWlPaU ZXlKcmFXUWlPaU", _BASE64, 30, _OPEN),
    # Money
    Format("stripe-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", _BASE64, 16, _OPEN),
    Format("square-token", "EAAA", _URL, 60, 60, True),
    Format("square-token", "sq0atp- sq0csp- sq0idp-", _URL, 22, 60),
    Format("shopify-token", "shpat_ shpss_ shpca_ shppa_ shpua_ shptka_", _ANY_HEX, 32, 64),
    Format("paypal-token", "access_token$production$ access_token$sandbox$", "a-z0-9$", 45, 60),
    Format("razorpay-key", "rzp_live_ rzp_test_", _ALNUM, 14, 14),
    Format("flutterwave-key", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-", "A-Za-z0-9-", 12, 60),
    Format("plaid-token", "access-production- access-sandbox- access-development-", _UUID, 36, 36),
    Format("shippo-token", "shippo_live_ shippo_test_", _HEX, 40, 40),
    Format("easypost-key", "EZAK EZTK", _ALNUM, 54, 54),
    Format("duffel-token", "duffel_test_ duffel_live_", "A-Za-z0-9_=-", 43, 43),
    Format("ramp-secret", "ramp_sec_", _ALNUM, 48, 48),
)  # fmt: skip


# --- rules: what needs more than a prefix and an alphabet -----------------------------------------------


class _Rule(NamedTuple):
    """A pattern that is tried around each place where one of the literals stands. The group
    `secret`, or all of it, is what goes."""

    name: str
    literals: tuple[bytes, ...]
    text: bytes
    before: tuple[int, ...]
    """How far before the literal it may begin. Every part of a pattern has an upper bound as well, so that
    each try costs little, however often it fails."""

    @property
    def pattern(self) -> re.Pattern[bytes]:
        return _compiled(self.text)


@cache
def _compiled(text: bytes) -> re.Pattern[bytes]:
    """Compiled when it is first needed: that takes longer than most hooks do."""
    return re.compile(text)


def _rule(name: str, literals: str, pattern: str, *before: int) -> _Rule:
    wanted = tuple(literal.encode() for literal in literals.split())
    return _Rule(name, wanted, pattern.encode(), before or (0,))


_EDGE = r"(?:(?<![A-Za-z0-9_~.-])|(?<=\\[nrt]))"
"""No letter before, or the letter of an escaped line end or tab in JSON."""
_GAP = r"(?:\s|\\[nrt]){1,8}"
_NAME = r"[^\s\"'\\]{1,100}"
_HASH = "./A-Za-z0-9"

RULES = (
    _rule("slack-hook", "hooks.slack.com/",
          r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,200})"),
    _rule("discord-hook", "/api/webhooks/", r"/api/webhooks/(?P<secret>\d{17,20}/[A-Za-z0-9_-]{60,100})"),
    _rule("teams-hook", ".webhook.office.com/", r"\.webhook\.office\.com/(?P<secret>[A-Za-z0-9/@_-]{60,250})"),
    _rule("bearer-token", "earer",
          r"earer (?P<secret>(?=[A-Za-z_.~+/-]{0,60}\d)[A-Za-z0-9_.~+/-]{20,4096}={0,2})"),
    _rule("basic-login", "asic",
          r"asic (?P<secret>(?=[A-Za-z+/]{0,30}[0-9+/=])[A-Za-z0-9+/]{15,2000}={0,2})(?![A-Za-z0-9_./-])"),
    _rule("password", "://",
          r"://[^/\s:@\"'\\`<>{}$]{0,100}:(?P<secret>[^/\s\"'\\<>{}$]{3,200})@(?=[A-Za-z0-9\[_])"),
    _rule("token", "://",
          r"://(?P<secret>(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{20,200})@(?=[A-Za-z0-9\[])"),
    _rule("password", "curl",
          r"curl\b[^\n\"']{0,200}? (?:-u|--user)[ =][\"']?[^\s:\"'\\$]{1,100}:"
          r"(?P<secret>[^\s\"'\\<>{}$]{4,200})"),
    _rule("password", "--pass",
          r"--pass(?:word|wd|phrase)?[ =][\"']?"
          r"(?P<secret>(?=[A-Za-z!-/:-@^_~]{0,60}\d)[^\s\"'\\<>{}$\[\]-][^\s\"'\\<>{}$\[\]]{5,199})"),
    _rule("password", "sshpass", r"sshpass -p ?[\"']?(?P<secret>[^\s\"'\\<>{}$]{4,200})"),
    _rule("password", "login mysql",
          r"(?:login|mysql(?:dump|admin)?)\b[^\n\"']{0,200}? -p ?"
          r"(?P<secret>(?=[A-Za-z!-/:-@^_~]{0,60}\d)[^\s\"'\\<>{}$\[\]-][^\s\"'\\<>{}$\[\]]{5,199})"),
    _rule("npm-login", "_auth",
          r"_auth\s?=\s?\"?(?P<secret>(?=[A-Za-z+/]{0,60}\d)[A-Za-z0-9+/]{12,2000}={0,2})(?![A-Za-z0-9_.(-])"),
    _rule("docker-login", '"auth',
          r"\"auth\\{0,3}\"\s{0,4}:\s{0,4}\\{0,3}\"(?P<secret>(?=[A-Za-z+/]{0,60}\d)[A-Za-z0-9+/]{12,2000}={0,2})"
          r"\\{0,3}\""),
    _rule("okta-token", "SSWS", r"SSWS (?P<secret>00[A-Za-z0-9_-]{40})(?![A-Za-z0-9_-])"),
    _rule("netrc-login", "machine default",
          rf"(?:machine{_GAP}{_NAME}(?:{_GAP}login{_GAP}{_NAME})?|default{_GAP}login{_GAP}{_NAME}){_GAP}"
          rf"password(?:\s|\\t){{1,8}}(?P<secret>[^\s\"'\\]{{3,200}})"),
    _rule("password-hash", "$P$ $H$", rf"\$[PH]\$[{_HASH}]{{31}}(?![{_HASH}])"),
    _rule("password-hash", "{SSHA", r"\{SSHA\d{0,3}\}[A-Za-z0-9+/]{24,120}={0,2}"),
    _rule("password-hash", "$2a$ $2b$ $2x$ $2y$", rf"\$2[abxy]\$\d\d\$[{_HASH}]{{53}}"),
    _rule("password-hash", "$1$ $5$ $6$ $7$ $y$ $gy$ $apr1$",
          rf"\$(?:[1567]|g?y|apr1)\$(?:rounds=\d{{1,9}}\$)?(?:[{_HASH}]{{1,40}}\$){{1,2}}[{_HASH}]{{22,86}}"),
    _rule("password-hash", "$argon2",
          r"\$argon2(?:id|i|d)\$v=\d{1,3}\$[a-z0-9=,]{1,60}\$[A-Za-z0-9+/]{8,100}\$[A-Za-z0-9+/]{16,200}"),
    _rule("password-hash", "$scrypt$ $pbkdf2",
          rf"\$(?:scrypt|pbkdf2[a-z0-9-]{{0,10}})\$[A-Za-z0-9=,]{{1,40}}"
          rf"\$[{_HASH}+=]{{8,100}}\$[{_HASH}+=]{{16,200}}"),
    _rule("password-hash", "pbkdf2_sha",
          r"pbkdf2_sha\d{1,3}\$\d{1,9}\$[A-Za-z0-9]{4,40}\$[A-Za-z0-9+/]{27,100}={0,2}"),
    _rule("azure-signature", "sig=", r"sig=(?P<secret>[A-Za-z0-9%+/]{40,90}(?:=|%3[dD]))"),
    _rule("azure-secret", "Q~",
          _EDGE + r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])", 4),
    _rule("telegram-token", ":AA", _EDGE + r"\d{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])", 10, 9, 8),
    _rule("azure-devops-token", "AZDO", _EDGE + r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])", 76),
    _rule("web-token", "eyJ",
          _EDGE + r"eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{0,2000}\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{8,20000}"
          r"\.[A-Za-z0-9_-]{16,64}(?![A-Za-z0-9_-])"),
    _rule("hashicorp-token", ".atlasv1.", _EDGE + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}", 14),
    _rule("mailchimp-key", "-us", _EDGE + r"[a-f0-9]{32}-us\d{1,2}(?![A-Za-z0-9])", 32),
    _rule("maxmind-key", "_mmk", _EDGE + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9])", 36),
)  # fmt: skip

FIELDS = (b"secret", b"token", b"passw", b"pwd", b"passphrase", b"credential", b"authorization", b"key")
"""In small letters; found in names such as AWS_SECRET_ACCESS_KEY, apiKey or "x-auth-token"."""
_PASSWORDS = (b"passw", b"pwd", b"passphrase")
_KINDS_OF_KEY = (
    b"api", b"access", b"account", b"private", b"signing", b"encryption", b"master", b"app", b"auth", b"service",
    b"license", b"consumer", b"shared", b"deploy", b"admin", b"client",
)  # fmt: skip
"""What must stand before `key` to make it one of these: most keys are those of a mapping."""
_VALUE_LENGTH, _PASSWORD_LENGTH = 12, 6
"""Shorter values are not taken for secrets."""
_VALUE_ENTROPY, _PASSWORD_ENTROPY = 3.0, 2.0

REDACTED = "[redacted: "
"""How the mark in place of a secret begins."""
Spot = tuple[int, int, str]
"""From, to, and what was there."""


def redact(data: bytes, own: Iterable[str] = ()) -> tuple[bytes, int]:
    """The data with `[redacted: NAME]` in place of every secret, and how many there were. What
    was JSON remains JSON."""
    marks = data.translate(_MARKS)
    found = (
        _tokens(data, marks),
        _web_tokens(data, marks),
        _private_keys(data),
        _by_rules(data),
        _in_fields(data),
    )
    spots = [(_past_escape(data, start), end, name) for search in found for start, end, name in search]
    spots += _matching(data, own)
    if not spots:
        return data, 0
    parts, at, count = [], 0, 0
    for start, end, name in sorted(spots):
        if end <= at:
            continue  # inside of another one
        if start >= at:
            parts += [data[at:start], f"{REDACTED}{name}]".encode()]
            count += 1
        at = end
    return b"".join([*parts, data[at:]]), count


def redacted_text(text: str, own: Iterable[str] = ()) -> str:
    return redact(text.encode("utf-8", "surrogatepass"), own)[0].decode("utf-8", "surrogatepass")


def redacted_beginning(text: str, length: int, own: Iterable[str] = ()) -> str:
    """The first letters of a text. It is cut after the secrets are gone: half a token looks like none."""
    return redacted_text(text[: length + _LONGEST], own)[:length]


def own_pattern(text: str) -> re.Pattern[bytes]:
    """A person's pattern. One that is no regular expression means itself: to leave it out would
    keep what they wanted gone."""
    wanted = text.encode("utf-8", "surrogatepass")
    try:
        return re.compile(wanted)
    except re.error:
        return re.compile(re.escape(wanted))


def _matching(data: bytes, own: Iterable[str]) -> Iterator[Spot]:
    for text in own:
        for found in own_pattern(text).finditer(data):
            if found.end() > found.start():
                yield found.start(), found.end(), "own"


# --- tokens -----------------------------------------------------------------------------------------------

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_IN_RUNS = _WORD | frozenset(b"-")
_MARKS = bytes(ord("x") if byte in _IN_RUNS else ord(" ") for byte in range(256))
_RUN = b"x" * 16
"""Every token has such a run of letters, digits, hyphens and underscores; a test holds the table to it."""
_JOINTS = frozenset(b"./+~:=$")
"""What may stand between a token's beginning and its run, as in `SG.` or `1//0`."""
_BEGINNING = 48
"""The longest beginning of this kind."""


def _alternatives(literals: Iterable[str]) -> str:
    """A pattern for any of the literals, the longest first, grouped by first letter: the matcher
    then tries a few dozen letters at each place, not hundreds of literals."""
    by_letter: dict[str, list[str]] = {}
    for literal in sorted(literals, key=len, reverse=True):
        by_letter.setdefault(literal[0], []).append(re.escape(literal[1:]))
    return "|".join(f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())


@cache
def _formats_by_prefix() -> tuple[re.Pattern[bytes], dict[bytes, list[tuple[Format, bytes]]]]:
    """A pattern for the prefixes of all formats, and what to try where one of them stands."""
    by_prefix: dict[str, list[tuple[Format, bytes]]] = {}
    for row in FORMATS:
        end = "(?![A-Za-z0-9])" if row.most < _OPEN else ""
        for prefix in row.prefixes.split():
            pattern = f"{re.escape(prefix)}[{row.alphabet}]{{{row.least},{row.most}}}{end}"
            by_prefix.setdefault(prefix, []).append((row, pattern.encode()))
    # Where `sk-` and a longer prefix both stand, both are tried.
    tried = {
        prefix.encode(): [row for other in by_prefix if prefix.startswith(other) for row in by_prefix[other]]
        for prefix in by_prefix
    }
    return re.compile(f"{_alternatives(by_prefix)}|(?P<discord>[MNO][A-Za-z0-9_-]{{23}})".encode()), tried


_DISCORD = re.compile(rb"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?![A-Za-z0-9])")
"""The one format that begins with a number in base64 instead of a literal."""


_AZURE_DEVOPS = (_EDGE + r"(?=(?:[a-z]{0,40}[2-7]){5})[a-z2-7]{52}").encode()
"""Older ones have nothing but their length and alphabet: base32, with at least five digits."""


def _tokens(data: bytes, marks: bytes) -> Iterator[Spot]:
    at = marks.find(_RUN)
    if at < 0:
        return
    prefixes, tried = _formats_by_prefix()
    done = 0
    while at >= 0:
        end = marks.find(b" ", at)
        end = len(data) if end < 0 else end
        if end - at in (52, 53) and (found := _compiled(_AZURE_DEVOPS).match(data, end - 52)):
            yield *found.span(), "azure-devops-token"
        if at and data[at - 1] in _JOINTS:
            at = max(done, at - _BEGINNING)
        while prefix := prefixes.search(data, at, end):
            at = prefix.start() + 1
            if not _begins_word(data, prefix.start()):
                continue
            if prefix["discord"]:
                found = _DISCORD.match(data, prefix.start())
                if found:
                    done = at = found.end()
                    yield *found.span(), "discord-token"
                continue
            for row, text in tried[prefix[0]]:
                if row.random and not _looks_random(data[prefix.end() : min(end, prefix.end() + _JUDGED)]):
                    # What begins a little later hardly looks random either; to look at it all again at each of a
                    # thousand prefixes in a row would take long.
                    at = prefix.end() + _SKIPPED
                    continue
                found = _compiled(text).match(data, prefix.start())
                if found:
                    done = at = found.end()
                    yield *found.span(), row.name
                    break
        at = marks.find(_RUN, max(done, end))


_JUDGED, _SKIPPED = 64, 24
_STRETCH = re.compile(rb"[A-Za-z0-9]{8,}")
_DIGIT, _LETTER = re.compile(rb"[0-9]"), re.compile(rb"[A-Za-z]")


def _looks_random(text: bytes) -> bool:
    """Whether there are eight letters and digits in a row, mixed: words and names hardly have that."""
    return any(_DIGIT.search(found) and _LETTER.search(found) for found in _STRETCH.findall(text))


def _begins_word(data: bytes, at: int) -> bool:
    r"""`sk-` in `task-` begins none. The last letter of `\n`, `\u00e9` or `%3D` belongs to another character."""
    if not at or data[at - 1] not in _WORD:
        return True
    before = data[max(0, at - 6) : at]
    return _ESCAPE.search(before) is not None


_ESCAPE = re.compile(rb"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})\Z")


def _past_escape(data: bytes, at: int) -> int:
    r"""The place itself, or the one behind, if the letter there belongs to an escape in JSON: in
    `\npm_...` the `n` must stay."""
    backslash = ord("\\")
    if not at or data[at - 1] != backslash or data[at] not in b"bfnrtu":
        return at
    first = at - 1
    while first and data[first - 1] == backslash:
        first -= 1
    return at + (at - first) % 2


# --- the rest ---------------------------------------------------------------------------------------------

_REST_OF_WEB_TOKEN = re.compile(rb"\.eyJ[A-Za-z0-9_-]{8,20000}\.[A-Za-z0-9_-]{8,20000}")


def _web_tokens(data: bytes, marks: bytes) -> Iterator[Spot]:
    """JSON Web Tokens. They are looked for from their first dot: `eyJ` alone begins every JSON
    object in base64, and the header may be of any length."""
    for dot in _occurrences(data, b".eyJ"):
        start = data.find(b"eyJ", marks.rfind(b" ", 0, dot) + 1, dot)
        while start >= 0 and not _begins_word(data, start):
            start = data.find(b"eyJ", start + 1, dot)
        if 0 <= start <= dot - 11:
            found = _REST_OF_WEB_TOKEN.match(data, dot)
            if found:
                yield start, found.end(), "web-token"


_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(rb"(?:[A-Za-z0-9+/=\r\n]|\\{1,4}[nr])*")


def _private_keys(data: bytes) -> Iterator[Spot]:
    """Up to the line that ends a key; without one, or if a quote comes first, as far as it looks like a key."""
    done = 0
    for at in _occurrences(data, b"-----BEGIN"):
        begins = _KEY_BEGINS.match(data, at) if at >= done else None
        if begins is None:
            continue
        end = data.find(b"-----END", begins.end(), begins.end() + _LONGEST)
        ends = _KEY_ENDS.match(data, end) if end >= 0 else None
        if ends and not _QUOTE.search(data, begins.end(), end):
            done = ends.end()
        else:
            body = _KEY_BODY.match(data, begins.end())
            done = body.end() if body else begins.end()
        yield at, done, "private-key"


_QUOTE = re.compile(rb"[\"']")


def _by_rules(data: bytes) -> Iterator[Spot]:
    for rule in RULES:
        for literal in rule.literals:
            for at in _occurrences(data, literal):
                for before in rule.before:
                    found = rule.pattern.match(data, at - before) if at >= before else None
                    if found:
                        yield *found.span("secret" if "secret" in found.re.groupindex else 0), rule.name
                        break


def _occurrences(data: bytes, literal: bytes) -> Iterator[int]:
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + len(literal))


# --- values of fields that are named like keys ------------------------------------------------------------

_SIGN = re.compile(
    # The rest of the name, its closing quote (escaped, if this is JSON in JSON), and a sign; the opening quote.
    rb"(?!izer)[A-Za-z0-9_.-]{0,40}\\{0,3}[\"']?\s{0,4}(?:=>|[:=])(?P<gap>\s{0,4})(?:\\{0,3}(?P<quote>[\"'`]))?"
    rb"(?:(?:Bearer|Basic|Token) )?",
    re.IGNORECASE,
)
_VALUE = re.compile(rb"[^\s\"'`\\,;&<>(){}\[\]]*")
_QUOTED = re.compile(rb"[^\s\"'`\\]*")
"""Between quotes, a password may have any sign."""
_PLACEHOLDER = re.compile(rb"[$<{\[(]|%\(|&[A-Za-z]")
_NUMBER = re.compile(rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_NAMES_IN_CODE = re.compile(rb"[A-Za-z_.]*")
_ENOUGH = 128
"""Bytes of a value that are judged."""


def _in_fields(data: bytes) -> Iterator[Spot]:
    small = data.lower()
    for field in FIELDS:
        end = 0
        for at in _occurrences(small, field):
            if at < end or (field == b"key" and not _is_kind_of_key(small, at)):
                continue
            sign = _SIGN.match(data, at + len(field))
            if sign is None:
                continue
            value = (_VALUE if sign["quote"] is None else _QUOTED).match(data, sign.end())
            assert value is not None  # both match nothing at all, too
            end = value.end()
            is_variable = data[at : at + len(field)].isupper() and not sign["gap"]  # as in an .env file
            if sign["quote"] is None and not is_variable and _NAMES_IN_CODE.fullmatch(value[0]):
                continue  # `password: string`, `password = self.password`
            if sign["quote"] is None and data[end : end + 1] in (b"(", b"["):
                continue  # a call
            if _looks_secret(value[0][:_ENOUGH], field in _PASSWORDS):
                yield value.start(), end, "value"


def _is_kind_of_key(small: bytes, at: int) -> bool:
    return small[max(0, at - 11) : at].rstrip(b"_-").endswith(_KINDS_OF_KEY)


def _looks_secret(value: bytes, is_password: bool) -> bool:
    if _NUMBER.fullmatch(value) or _PLACEHOLDER.match(value):  # a count of tokens, a variable
        return False
    if is_password:
        return len(value) >= _PASSWORD_LENGTH and _entropy(value) >= _PASSWORD_ENTROPY
    mixed = _DIGIT.search(value) and _LETTER.search(value)  # few plain words and names have both
    return bool(mixed) and len(value) >= _VALUE_LENGTH and _entropy(value) >= _VALUE_ENTROPY


def _entropy(value: bytes) -> float:
    """Bits per letter."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in map(value.count, set(value)))
